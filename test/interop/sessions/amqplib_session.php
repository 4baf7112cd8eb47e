<?php
// A session with php-amqplib. Prints "ok NAME" or "not ok NAME: why" for each step.
require_once 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPProtocolChannelException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

$url = parse_url($argv[1]);

function connect()
{
    global $url;
    return new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass'], '/');
}

function check($what, $got, $want)
{
    if ($got !== $want) {
        throw new Exception("$what: got " . var_export($got, true) . ", want " . var_export($want, true));
    }
}

function fetch($ch, $queue, $noAck = true)
{
    for ($i = 0; $i < 100; $i++) {
        if ($m = $ch->basic_get($queue, $noAck)) {
            return $m;
        }
        usleep(50000);
    }
    throw new Exception("queue $queue stays empty");
}

$steps = [
    'publish_with_confirms' => function ($ch) {
        $ch->confirm_select();
        $acked = 0;
        $ch->set_ack_handler(function () use (&$acked) { $acked++; });
        $ch->set_nack_handler(function () { throw new Exception('nack'); });
        $ch->queue_declare('php.confirms', false, true, true, false);
        for ($i = 0; $i < 200; $i++) {
            $ch->basic_publish(new AMQPMessage("$i", ['delivery_mode' => 2]), '', 'php.confirms');
        }
        $ch->wait_for_pending_acks(10);
        check('acked', $acked, 200);
        check('messages', $ch->queue_declare('php.confirms', true)[1], 200);
    },
    'consume_and_ack' => function ($ch) {
        $ch->queue_declare('php.consume', false, false, true, false);
        for ($i = 0; $i < 20; $i++) {
            $ch->basic_publish(new AMQPMessage("$i"), '', 'php.consume');
        }
        $got = [];
        $ch->basic_consume('php.consume', 'tag', false, false, false, false, function ($m) use (&$got, $ch) {
            $got[] = (int)$m->body;
            $ch->basic_ack($m->delivery_info['delivery_tag']);
        });
        while (count($got) < 20) {
            $ch->wait(null, false, 10);
        }
        $ch->basic_cancel('tag');
        check('got', $got, range(0, 19));
    },
    'nack_and_reject' => function ($ch) {
        $ch->queue_declare('php.nack', false, false, true, false);
        $ch->basic_publish(new AMQPMessage('a'), '', 'php.nack');
        $m = fetch($ch, 'php.nack', false);
        check('redelivered', (bool)$m->delivery_info['redelivered'], false);
        $ch->basic_nack($m->delivery_info['delivery_tag'], false, true);
        $m = fetch($ch, 'php.nack', false);
        check('redelivered', (bool)$m->delivery_info['redelivered'], true);
        $ch->basic_reject($m->delivery_info['delivery_tag'], false);
        check('empty', $ch->basic_get('php.nack'), null);
    },
    'exchange_kinds' => function ($ch) {
        foreach ([
            ['direct', 'k', [], [], 'k'], ['fanout', '', [], [], 'whatever'], ['topic', 'a.#', [], [], 'a.b.c'],
            ['headers', '', ['x-match' => 'all', 'a' => 1], ['a' => 1], ''],
        ] as list($kind, $key, $arguments, $headers, $hit)) {
            $ch->exchange_declare("php.$kind", $kind, false, false, true);
            list($queue) = $ch->queue_declare('', false, false, true, false);
            $ch->queue_bind($queue, "php.$kind", $key, false, new AMQPTable($arguments));
            $ch->basic_publish(new AMQPMessage('x', ['application_headers' => new AMQPTable($headers)]), "php.$kind", $hit);
            check('body', fetch($ch, $queue)->body, 'x');
        }
    },
    'returns' => function ($ch) {
        $returned = null;
        $ch->set_return_listener(function ($code, $text, $exchange, $key, $m) use (&$returned) { $returned = [$code, $key, $m->body]; });
        $ch->basic_publish(new AMQPMessage('back'), 'amq.direct', 'php.nowhere', true);
        while (!$returned) {
            $ch->wait(null, false, 10);
        }
        check('returned', $returned, [312, 'php.nowhere', 'back']);
    },
    'transactions' => function ($ch) {
        $ch->queue_declare('php.tx', false, false, true, false);
        $ch->tx_select();
        $ch->basic_publish(new AMQPMessage('rolled back'), '', 'php.tx');
        $ch->tx_rollback();
        $ch->basic_publish(new AMQPMessage('committed'), '', 'php.tx');
        $ch->tx_commit();
        check('body', fetch($ch, 'php.tx')->body, 'committed');
    },
    'prefetch' => function ($ch) {
        $ch->queue_declare('php.prefetch', false, false, true, false);
        for ($i = 0; $i < 5; $i++) {
            $ch->basic_publish(new AMQPMessage("$i"), '', 'php.prefetch');
        }
        $ch->basic_qos(0, 2, false);
        $tags = [];
        $ch->basic_consume('php.prefetch', '', false, false, false, false, function ($m) use (&$tags) {
            $tags[] = $m->delivery_info['delivery_tag'];
        });
        while (count($tags) < 2) {
            $ch->wait(null, false, 10);
        }
        try {
            $ch->wait(null, false, 0.3);
            throw new Exception('more than the prefetch');
        } catch (PhpAmqpLib\Exception\AMQPTimeoutException $e) {
        }
        $ch->basic_ack($tags[0]);
        $ch->wait(null, false, 10);
        check('count', count($tags), 3);
    },
    'properties_round_trip' => function ($ch) {
        $ch->queue_declare('php.properties', false, false, true, false);
        $headers = ['s' => 'text', 'i' => 7, 'b' => true, 'list' => [1, 2], 'table' => ['k' => 'v']];
        $sent = ['content_type' => 'text/plain', 'delivery_mode' => 2, 'priority' => 5, 'correlation_id' => 'c', 'reply_to' => 'r',
            'message_id' => 'm', 'timestamp' => 1700000000, 'type' => 't', 'app_id' => 'a'];
        $ch->basic_publish(new AMQPMessage('grüße', $sent + ['application_headers' => new AMQPTable($headers)]), '', 'php.properties');
        $m = fetch($ch, 'php.properties');
        check('body', $m->body, 'grüße');
        foreach ($sent as $k => $v) {
            check($k, $m->get($k) == $v, true);
        }
        check('headers', $m->get('application_headers')->getNativeData(), $headers);
    },
    'errors' => function ($ch) {
        $c = $ch->getConnection();
        try {
            $ch->queue_declare('php.missing', true);
            throw new Exception('no error');
        } catch (AMQPProtocolChannelException $e) {
            check('code', $e->amqp_reply_code, 404);
        }
        $c->channel()->queue_declare('', false, false, true);
    },
    'reconnect' => function ($ch) {
        $ch->confirm_select();
        $ch->queue_declare('php.reconnect', false, true, false, false);
        $ch->basic_publish(new AMQPMessage('x', ['delivery_mode' => 2]), '', 'php.reconnect');
        $ch->wait_for_pending_acks(10);
        fetch($ch, 'php.reconnect', false);
        $ch->getConnection()->close();
        $c = connect();
        $ch = $c->channel();
        $m = fetch($ch, 'php.reconnect');
        check('redelivered', (bool)$m->delivery_info['redelivered'], true);
        $ch->queue_delete('php.reconnect');
        $c->close();
    },
];

foreach ($steps as $name => $step) {
    $c = connect();
    try {
        $step($c->channel());
        echo "ok $name\n";
    } catch (Throwable $e) {
        echo "not ok $name: " . get_class($e) . ' ' . $e->getMessage() . "\n";
    }
    if ($c->isConnected()) {
        $c->close();
    }
}
