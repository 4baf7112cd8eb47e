// A session with the Java client, in the form of version 5.0, which Debian has.
// Prints "ok NAME" or "not ok NAME: why" for each step.

import com.rabbitmq.client.*;

import java.io.IOException;
import java.util.*;
import java.util.concurrent.*;

public class Session {
    interface Step {
        void run(Connection c) throws Exception;
    }

    static final Map<String, Object> NONE = null;
    static ConnectionFactory factory;

    static void check(String what, Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw new IllegalStateException(what + ": got " + got + ", want " + want);
        }
    }

    static GetResponse fetch(Channel ch, String queue, boolean autoAck) throws Exception {
        for (int i = 0; i < 100; i++) {
            GetResponse r = ch.basicGet(queue, autoAck);
            if (r != null) {
                return r;
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("queue " + queue + " stays empty");
    }

    static void publishWithConfirms(Connection c) throws Exception {
        Channel ch = c.createChannel();
        ch.confirmSelect();
        String q = ch.queueDeclare("java.confirms", false, true, false, NONE).getQueue();
        for (int i = 0; i < 200; i++) {
            ch.basicPublish("", q, MessageProperties.PERSISTENT_BASIC, ("" + i).getBytes());
        }
        ch.waitForConfirmsOrDie(10_000);
        check("messages", ch.messageCount(q), 200L);
    }

    static void consumeAndAck(Connection c) throws Exception {
        Channel ch = c.createChannel();
        String q = ch.queueDeclare().getQueue();
        for (int i = 0; i < 20; i++) {
            ch.basicPublish("", q, null, ("" + i).getBytes());
        }
        BlockingQueue<String> got = new LinkedBlockingQueue<>();
        String tag = ch.basicConsume(q, false, new DefaultConsumer(ch) {
            @Override
            public void handleDelivery(String tag, Envelope e, AMQP.BasicProperties p, byte[] body) throws IOException {
                getChannel().basicAck(e.getDeliveryTag(), false);
                got.add(new String(body));
            }
        });
        for (int i = 0; i < 20; i++) {
            check("body", got.poll(10, TimeUnit.SECONDS), "" + i);
        }
        check("messages", ch.messageCount(q), 0L);
        ch.basicCancel(tag);
    }

    static void nackAndReject(Connection c) throws Exception {
        Channel ch = c.createChannel();
        String q = ch.queueDeclare().getQueue();
        ch.basicPublish("", q, null, "a".getBytes());
        GetResponse r = fetch(ch, q, false);
        check("redelivered", r.getEnvelope().isRedeliver(), false);
        ch.basicNack(r.getEnvelope().getDeliveryTag(), false, true);
        r = fetch(ch, q, false);
        check("redelivered", r.getEnvelope().isRedeliver(), true);
        ch.basicReject(r.getEnvelope().getDeliveryTag(), false);
        check("empty", ch.basicGet(q, true), null);
        ch.basicPublish("", q, null, "b".getBytes());
        fetch(ch, q, false);
        ch.basicRecover(true);
        check("redelivered", fetch(ch, q, true).getEnvelope().isRedeliver(), true);
    }

    static void exchangeKinds(Connection c) throws Exception {
        Channel ch = c.createChannel();
        Map<String, Object> match = new HashMap<>();
        match.put("x-match", "all");
        match.put("a", 1);
        Object[][] cases = {
            {"direct", "k", NONE, "k"}, {"fanout", "", NONE, "whatever"}, {"topic", "a.*.#", NONE, "a.b.c"}, {"headers", "", match, ""}};
        for (Object[] k : cases) {
            String x = "java." + k[0];
            ch.exchangeDeclare(x, (String) k[0], false, true, null);
            String q = ch.queueDeclare().getQueue();
            @SuppressWarnings("unchecked") Map<String, Object> arguments = (Map<String, Object>) k[2];
            ch.queueBind(q, x, (String) k[1], arguments);
            ch.basicPublish(x, (String) k[3], new AMQP.BasicProperties.Builder().headers(Collections.singletonMap("a", 1)).build(), "x".getBytes());
            GetResponse r = fetch(ch, q, true);
            check("exchange", r.getEnvelope().getExchange(), x);
            check("key", r.getEnvelope().getRoutingKey(), k[3]);
        }
        ch.exchangeDeclare("java.e2e", "fanout", false, true, null);
        ch.exchangeDeclare("java.e2e.target", "fanout", false, true, null);
        ch.exchangeBind("java.e2e.target", "java.e2e", "");
        String q = ch.queueDeclare().getQueue();
        ch.queueBind(q, "java.e2e.target", "");
        ch.basicPublish("java.e2e", "", null, "x".getBytes());
        fetch(ch, q, true);
    }

    static void returns(Connection c) throws Exception {
        Channel ch = c.createChannel();
        BlockingQueue<Integer> codes = new LinkedBlockingQueue<>();
        ch.addReturnListener((code, text, exchange, key, p, body) -> codes.add(code));
        ch.confirmSelect();
        ch.basicPublish("amq.direct", "java.nowhere", true, null, "back".getBytes());
        ch.waitForConfirmsOrDie(10_000);
        check("code", codes.poll(10, TimeUnit.SECONDS), 312);
    }

    static void transactions(Connection c) throws Exception {
        Channel ch = c.createChannel();
        String q = ch.queueDeclare().getQueue();
        ch.txSelect();
        ch.basicPublish("", q, null, "rolled back".getBytes());
        ch.txRollback();
        ch.basicPublish("", q, null, "committed".getBytes());
        ch.txCommit();
        check("body", new String(fetch(ch, q, true).getBody()), "committed");
    }

    static void prefetch(Connection c) throws Exception {
        Channel ch = c.createChannel();
        String q = ch.queueDeclare().getQueue();
        for (int i = 0; i < 5; i++) {
            ch.basicPublish("", q, null, ("" + i).getBytes());
        }
        ch.basicQos(2);
        BlockingQueue<Long> tags = new LinkedBlockingQueue<>();
        ch.basicConsume(q, false, new DefaultConsumer(ch) {
            @Override
            public void handleDelivery(String tag, Envelope e, AMQP.BasicProperties p, byte[] body) {
                tags.add(e.getDeliveryTag());
            }
        });
        tags.poll(10, TimeUnit.SECONDS);
        Long second = tags.poll(10, TimeUnit.SECONDS);
        check("beyond the prefetch", tags.poll(200, TimeUnit.MILLISECONDS), null);
        ch.basicAck(second, true);
        check("third", tags.poll(10, TimeUnit.SECONDS), 3L);
    }

    static void propertiesRoundTrip(Connection c) throws Exception {
        Channel ch = c.createChannel();
        String q = ch.queueDeclare().getQueue();
        Map<String, Object> headers = new HashMap<>();
        headers.put("i", 7);
        headers.put("l", 1L << 40);
        headers.put("b", true);
        headers.put("d", 1.5);
        headers.put("date", new Date(1_700_000_000_000L));
        headers.put("list", Arrays.asList(1, 2));
        headers.put("table", Collections.singletonMap("k", 1));
        headers.put("decimal", new java.math.BigDecimal("3.14"));
        AMQP.BasicProperties p = new AMQP.BasicProperties.Builder().headers(headers).contentType("text/plain").deliveryMode(2).priority(5)
            .correlationId("c").replyTo("r").messageId("m").timestamp(new Date(1_700_000_000_000L)).type("t").appId("a").build();
        ch.basicPublish("", q, p, new byte[0]);
        GetResponse r = fetch(ch, q, true);
        check("properties", r.getProps().toString(), p.toString());
        check("body", r.getBody().length, 0);
    }

    static void errors(Connection c) throws Exception {
        Channel ch = c.createChannel();
        try {
            ch.queueDeclarePassive("java.missing");
            throw new IllegalStateException("no error");
        } catch (IOException e) {
            ShutdownSignalException s = (ShutdownSignalException) e.getCause();
            check("code", ((AMQP.Channel.Close) s.getReason()).getReplyCode(), 404);
        }
        check("open", c.isOpen(), true);
        c.createChannel().queueDeclare();
    }

    static void rpc(Connection c) throws Exception {
        Channel server = c.createChannel(), client = c.createChannel();
        String q = server.queueDeclare().getQueue();
        server.basicConsume(q, true, new DefaultConsumer(server) {
            @Override
            public void handleDelivery(String tag, Envelope e, AMQP.BasicProperties p, byte[] body) throws IOException {
                getChannel().basicPublish("", p.getReplyTo(), new AMQP.BasicProperties.Builder().correlationId(p.getCorrelationId()).build(), body);
            }
        });
        RpcClient rpc = new RpcClient(client, "", q, 10_000); // direct reply-to
        check("answer", rpc.stringCall("echo"), "echo");
    }

    static void reconnect(Connection c) throws Exception {
        Channel ch = c.createChannel();
        ch.confirmSelect();
        ch.queueDeclare("java.reconnect", true, false, false, null);
        ch.basicPublish("", "java.reconnect", MessageProperties.PERSISTENT_BASIC, "x".getBytes());
        ch.waitForConfirmsOrDie(10_000);
        fetch(ch, "java.reconnect", false);
        c.close();
        try (Connection again = factory.newConnection()) {
            ch = again.createChannel();
            check("redelivered", fetch(ch, "java.reconnect", true).getEnvelope().isRedeliver(), true);
            ch.queueDelete("java.reconnect");
        }
    }

    public static void main(String[] args) throws Exception {
        factory = new ConnectionFactory();
        factory.setUri(args[0].replaceAll("/$", ""));
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("publish_with_confirms", Session::publishWithConfirms);
        steps.put("consume_and_ack", Session::consumeAndAck);
        steps.put("nack_and_reject", Session::nackAndReject);
        steps.put("exchange_kinds", Session::exchangeKinds);
        steps.put("returns", Session::returns);
        steps.put("transactions", Session::transactions);
        steps.put("prefetch", Session::prefetch);
        steps.put("properties_round_trip", Session::propertiesRoundTrip);
        steps.put("errors", Session::errors);
        steps.put("rpc", Session::rpc);
        steps.put("reconnect", Session::reconnect);
        for (Map.Entry<String, Step> s : steps.entrySet()) {
            Connection c = factory.newConnection();
            try {
                s.getValue().run(c);
                System.out.println("ok " + s.getKey());
            } catch (Throwable e) {
                System.out.println("not ok " + s.getKey() + ": " + e);
            }
            if (c.isOpen()) {
                c.close();
            }
        }
        System.exit(0);
    }
}
