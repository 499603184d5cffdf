<?php
// phpredis as people use it: named checks, run one after the other, each on an empty server.
//
//     php phpredis.php PORT

declare(strict_types=1);

const LAST = '99999999999999-1';
$port = (int) $argv[1];
$checks = [];

function check(string $name, callable $body): void
{
    $GLOBALS['checks'][$name] = $body;
}

function equal(mixed $got, mixed $wanted): void
{
    if ($got !== $wanted) {
        throw new Exception('got ' . json_encode($got) . ', wanted ' . json_encode($wanted));
    }
}

// What the server said when it refused a command; phpredis returns false and keeps the words.
function refused(Redis $redis, string $begins, callable $command): void
{
    $redis->clearLastError();
    try {
        equal($command(), false);
        $said = (string) $redis->getLastError();
    } catch (RedisException $problem) {
        $said = $problem->getMessage();
    }
    equal(substr($said, 0, strlen($begins)), $begins);
}

function connected(): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', $GLOBALS['port'], 20.0);
    $redis->client('setname', 'phpredis');
    return $redis;
}

check("produce and read ranges", function (Redis $redis): void {
    $first = $redis->xAdd('s', '*', ['n' => '1', 'unit' => '°C']);
    equal($redis->xAdd('s', LAST, ['n' => '2'], 2, true), LAST);
    equal($redis->xRange('s', '-', '+'), [$first => ['n' => '1', 'unit' => '°C'], LAST => ['n' => '2']]);
    equal($redis->xRevRange('s', '+', '-', 1), [LAST => ['n' => '2']]);
    equal($redis->xRead(['s' => $first], 10, 100), ['s' => [LAST => ['n' => '2']]]);
    equal($redis->xDel('s', [$first, '1-1']), 1);
    equal($redis->xTrim('s', 0), 1);
    equal($redis->xLen('s'), 0);
});

check("group round trip", function (Redis $redis): void {
    equal($redis->xGroup('CREATE', 's', 'g', '$', true), true);
    foreach ([1, 2, 3] as $n) {
        $redis->xAdd('s', "$n-0", ['n' => (string) $n]);
    }
    $read = $redis->xReadGroup('g', 'a', ['s' => '>'], 2, 100);
    equal($read, ['s' => ['1-0' => ['n' => '1'], '2-0' => ['n' => '2']]]);
    equal($redis->xAck('s', 'g', ['1-0', '9-9']), 1);
    equal($redis->xPending('s', 'g'), [1, '2-0', '2-0', [['a', '1']]]);
    equal($redis->xClaim('s', 'g', 'b', 0, ['2-0'], ['IDLE' => 5]), ['2-0' => ['n' => '2']]);
    equal($redis->xReadGroup('g', 'b', ['s' => '0']), ['s' => ['2-0' => ['n' => '2']]]);
    equal($redis->xInfo('GROUPS', 's')[0]['lag'], 1);
    equal($redis->xInfo('STREAM', 's')['length'], 3);
    equal($redis->xGroup('DELCONSUMER', 's', 'g', 'b'), 1);
});

check("idempotent production by raw commands", function (Redis $redis): void {
    $add = fn () => $redis->rawCommand('XADD', 's', 'IDMP', 'producer', 'm1', '*', 'n', '1');
    equal($add(), $add());
    equal($redis->xLen('s'), 1);
});

check("transactions and pipelines", function (Redis $redis): void {
    equal($redis->multi()->xAdd('s', '1-1', ['f' => 'v'])->incr('n')->exec(), ['1-1', 1]);
    $redis->watch('n');
    connected()->incr('n');
    equal($redis->multi()->incr('n')->exec(), false);
    $pipeline = $redis->pipeline();
    for ($n = 1; $n <= 1000; $n++) {
        $pipeline->xAdd('p', "$n-0", ['n' => (string) $n]);
    }
    equal($pipeline->exec()[999], '1000-0');
});

check("scripts", function (Redis $redis): void {
    $source = "return redis.call('XADD', KEYS[1], ARGV[1], 'f', 'v')";
    equal($redis->eval($source, ['s', '7-7'], 1), '7-7');
    equal($redis->evalSha(sha1($source), ['s', '8-8'], 1), '8-8');
});

check("sessions of PHP, with their locks", function (Redis $redis): void {
    foreach (['first', 'second'] as $turn) {
        session_id('abc');
        session_start();
        $_SESSION['turns'] = ($_SESSION['turns'] ?? '') . $turn;
        session_write_close();
    }
    session_start(['read_and_close' => true]);
    equal($_SESSION['turns'], 'firstsecond');
    equal($redis->exists('PHPREDIS_SESSION:abc'), 1);
});

check("errors are errors", function (Redis $redis): void {
    $redis->set('string', 'text');
    refused($redis, 'WRONGTYPE ', fn () => $redis->xAdd('string', '*', ['f' => 'v']));
    refused($redis, 'NOGROUP ', fn () => $redis->xReadGroup('g', 'c', ['s' => '>']));
    refused($redis, "ERR unknown command 'HSET'", fn () => $redis->hSet('h', 'f', 'v'));
    equal($redis->ping(), true);
});

ini_set('session.save_handler', 'redis');
ini_set('session.save_path', "tcp://127.0.0.1:$port");
ini_set('session.use_cookies', '0');
ini_set('session.cache_limiter', '');
ini_set('redis.session.locking_enabled', '1');
ob_start();
foreach ($checks as $name => $body) {
    try {
        $redis = connected();
        $redis->flushAll();
        $body($redis);
        echo "ok: $name\n";
    } catch (Throwable $problem) {
        echo "failed: $name: $problem\n";
    }
}
ob_end_flush();
