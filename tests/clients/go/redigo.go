// Command redigo uses the client as people do: named checks, one after the other, each on an empty
// server.
//
//	redigo PORT
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const patience = 20 * time.Second

var pool *redis.Pool

// entry is what redigo makes of an entry of a stream: its ID, and its fields and values.
type entry struct {
	id     string
	fields map[string]string
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(got, wanted interface{}) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("got %#v, wanted %#v", got, wanted))
	}
}

func do(c redis.Conn, name string, args ...interface{}) interface{} {
	reply, err := c.Do(name, args...)
	must(err)
	return reply
}

func text(reply interface{}) string {
	found, err := redis.String(reply, nil)
	must(err)
	return found
}

func values(reply interface{}) []interface{} {
	found, err := redis.Values(reply, nil)
	must(err)
	return found
}

func refused(c redis.Conn, begins string, name string, args ...interface{}) {
	_, err := c.Do(name, args...)
	var problem redis.Error
	if !errors.As(err, &problem) || !strings.HasPrefix(problem.Error(), begins) {
		panic(fmt.Sprintf("%s: got %v, wanted %s", name, err, begins))
	}
}

func entries(reply interface{}) []entry {
	found := []entry{}
	for _, each := range values(reply) {
		pair := values(each)
		fields, err := redis.StringMap(pair[1], nil)
		must(err)
		found = append(found, entry{text(pair[0]), fields})
	}
	return found
}

// ofStream is the entries of the only stream of a reply to XREAD or XREADGROUP.
func ofStream(reply interface{}) []entry {
	streams := values(reply)
	equal(len(streams), 1)
	return entries(values(streams[0])[1])
}

func untilBlocked(c redis.Conn) {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if strings.Contains(text(do(c, "INFO", "clients")), "blocked_clients:1\r\n") {
			return
		}
		if time.Now().After(deadline) {
			panic("no reader waits")
		}
	}
}

func groups(c redis.Conn) {
	do(c, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
	for n := 1; n <= 3; n++ {
		do(c, "XADD", "s", fmt.Sprintf("%d-0", n), "n", n)
	}
	first := ofStream(do(c, "XREADGROUP", "GROUP", "g", "a", "COUNT", 2, "STREAMS", "s", ">"))
	equal(first, []entry{{"1-0", map[string]string{"n": "1"}}, {"2-0", map[string]string{"n": "2"}}})
	equal(do(c, "XACK", "s", "g", "1-0", "9-9"), int64(1))
	equal(text(values(do(c, "XPENDING", "s", "g"))[1]), "2-0")
	claimed := values(do(c, "XAUTOCLAIM", "s", "g", "b", 0, "0"))
	equal(entries(claimed[1]), []entry{{"2-0", map[string]string{"n": "2"}}})
	group := values(values(do(c, "XINFO", "GROUPS", "s"))[0])
	equal([]interface{}{text(group[10]), group[11]}, []interface{}{"lag", int64(1)})
	equal(do(c, "XLEN", "s"), int64(3))
}

func idempotence(c redis.Conn) {
	add := redis.Args{"s", "IDMP", "producer", "m1", "*"}.AddFlat(map[string]int{"n": 1})
	once := text(do(c, "XADD", add...))
	equal(text(do(c, "XADD", add...)), once)
	equal(do(c, "XLEN", "s"), int64(1))
}

func blocking(c redis.Conn) {
	read := make(chan interface{}, 1)
	go func() {
		reader := pool.Get()
		defer reader.Close()
		reply, err := redis.DoWithTimeout(reader, patience, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
		if err != nil {
			reply = err
		}
		read <- reply
	}()
	untilBlocked(c)
	do(c, "XADD", "s", "5-5", "task", "1")
	equal(ofStream(<-read), []entry{{"5-5", map[string]string{"task": "1"}}})
	equal(do(c, "XREAD", "BLOCK", 20, "STREAMS", "s", "$"), nil)
}

func transactions(c redis.Conn) {
	must(c.Send("MULTI"))
	must(c.Send("XADD", "s", "1-1", "f", "v"))
	must(c.Send("INCR", "n"))
	done := values(do(c, "EXEC"))
	equal(text(done[0]), "1-1")
	equal(done[1], int64(1))
	do(c, "WATCH", "n")
	other := pool.Get()
	defer other.Close()
	do(other, "INCR", "n")
	must(c.Send("MULTI"))
	must(c.Send("INCR", "n"))
	equal(do(c, "EXEC"), nil)
}

func pipelines(c redis.Conn) {
	for n := 1; n <= 1000; n++ {
		must(c.Send("XADD", "p", fmt.Sprintf("%d-0", n), "n", n))
	}
	must(c.Flush())
	for n := 1; n <= 1000; n++ {
		id, err := redis.String(c.Receive())
		must(err)
		equal(id, fmt.Sprintf("%d-0", n))
	}
}

func scripts(c redis.Conn) {
	script := redis.NewScript(1, "return redis.call('XADD', KEYS[1], ARGV[1], 'f', 'v')")
	reply, err := script.Do(c, "s", "7-7")
	must(err)
	equal(text(reply), "7-7")
	must(script.Load(c))
	must(script.SendHash(c, "s", "8-8"))
	must(c.Flush())
	reply, err = c.Receive()
	must(err)
	equal(text(reply), "8-8")
}

func messages(c redis.Conn) {
	listening := pool.Get()
	defer listening.Close()
	listener := redis.PubSubConn{Conn: listening}
	must(listener.Subscribe("news"))
	_, subscribed := listener.ReceiveWithTimeout(patience).(redis.Subscription)
	equal(subscribed, true)
	equal(do(c, "PUBLISH", "news", "hello"), int64(1))
	heard := listener.ReceiveWithTimeout(patience).(redis.Message)
	equal(string(heard.Data), "hello")
	must(listener.Unsubscribe())
	listener.ReceiveWithTimeout(patience)
}

func failures(c redis.Conn) {
	do(c, "SET", "string", "text")
	refused(c, "WRONGTYPE ", "XADD", "string", "*", "f", "v")
	refused(c, "NOGROUP ", "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
	refused(c, "ERR unknown command 'HSET'", "HSET", "h", "f", "v")
	equal(text(do(c, "PING")), "PONG")
}

func timeouts(c redis.Conn) {
	_, err := redis.DoWithTimeout(c, 50*time.Millisecond, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
	var problem net.Error
	equal(errors.As(err, &problem) && problem.Timeout(), true)
}

// check runs one check on an empty server, and prints a line about it.
func check(name string, run func(redis.Conn)) {
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Printf("failed: %s: %v\n", name, problem)
		}
	}()
	c := pool.Get()
	defer c.Close()
	do(c, "FLUSHALL")
	run(c)
	fmt.Printf("ok: %s\n", name)
}

func main() {
	pool = &redis.Pool{MaxIdle: 3, Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", "127.0.0.1:"+os.Args[1], redis.DialClientName("redigo"))
	}}
	defer pool.Close()
	check("group round trip", groups)
	check("idempotent production", idempotence)
	check("a blocked read is served by another connection, or ends with nothing", blocking)
	check("transactions", transactions)
	check("pipelines", pipelines)
	check("scripts", scripts)
	check("publish and subscribe", messages)
	check("errors are errors", failures)
	check("a client gives up a blocked read", timeouts)
}
