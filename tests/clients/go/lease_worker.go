// Command lease_worker is a worker as users of go-redis write it, or adds a task:
//
//	lease_worker start NAME PORT PLACE
//	lease_worker add TASK PORT PLACE
//
// It takes what was idle for 100 ms, then what is new; ../lease_workers.py says what the tasks are.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/redis.v5"
)

const idleMS = 100

var (
	client *redis.Client
	what   = os.Args[2]
	place  = os.Args[4]
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func do(args ...interface{}) interface{} {
	command := redis.NewCmd(args...)
	if client.Process(command); command.Err() == redis.Nil {
		return nil
	}
	must(command.Err())
	return command.Val()
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(place, name))
	return err == nil
}

func handle(task string) {
	isFirst := !exists(task)
	file, err := os.Create(filepath.Join(place, task))
	must(err)
	must(file.Close())
	fmt.Printf("began %s %s\n", task, what)
	if task == "poison" {
		os.Exit(1)
	}
	if !isFirst || task != "die" && task != "slow" {
		return
	}
	for task == "die" || !exists("release") {
		time.Sleep(20 * time.Millisecond)
	}
}

func taken() []interface{} {
	claimed := do("XAUTOCLAIM", "jobs", "g", what, idleMS, "0", "COUNT", 1).([]interface{})
	if idle := claimed[1].([]interface{}); len(idle) > 0 {
		return idle
	}
	read := do("XREADGROUP", "GROUP", "g", what, "COUNT", 1, "BLOCK", 50, "STREAMS", "jobs", ">")
	if read == nil {
		return nil
	}
	return read.([]interface{})[0].([]interface{})[1].([]interface{})
}

func main() {
	client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[3]})
	if os.Args[1] == "add" {
		do("XADD", "jobs", "*", "task", what)
		return
	}
	for {
		for _, each := range taken() {
			entry := each.([]interface{})
			handle(entry[1].([]interface{})[1].(string))
			do("XACK", "jobs", "g", entry[0])
		}
	}
}
