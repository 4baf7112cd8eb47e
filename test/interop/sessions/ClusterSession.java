// A session with the Java client, in the form of version 5.0, against three nodes that end and come back: see cluster.go.
// Connections are recovered by the client itself, with channels, confirms and consumers. What was nacked, or had no answer, is
// published again under another id.

import com.rabbitmq.client.*;

import java.io.*;
import java.net.URI;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

public class ClusterSession {
    static final int BATCH = 10;
    static String queue;
    static final Set<String> confirmed = ConcurrentHashMap.newKeySet();
    static final Set<String> published = ConcurrentHashMap.newKeySet();
    static final Map<String, Integer> got = new ConcurrentHashMap<>();
    static final Queue<String> faults = new ConcurrentLinkedQueue<>();
    static final AtomicInteger failures = new AtomicInteger();
    static final AtomicInteger publisherRecoveries = new AtomicInteger(), consumerRecoveries = new AtomicInteger();
    static volatile boolean stop;
    static final List<String> verdicts = new ArrayList<>();

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void verdict(String name, boolean good, Object why) {
        verdicts.add(good ? "ok " + name : "not ok " + name + ": " + why);
    }

    static Connection connect(List<Address> addresses, AtomicInteger recoveries) throws Exception {
        ConnectionFactory f = new ConnectionFactory();
        f.setAutomaticRecoveryEnabled(true);
        f.setTopologyRecoveryEnabled(true);
        f.setNetworkRecoveryInterval(200);
        f.setRequestedHeartbeat(5);
        Connection c = f.newConnection(addresses);
        ((Recoverable) c).addRecoveryListener(new RecoveryListener() {
            public void handleRecovery(Recoverable r) {
                recoveries.incrementAndGet();
            }

            public void handleRecoveryStarted(Recoverable r) {
            }
        });
        return c;
    }

    static void publish(Connection c) throws Exception {
        Channel ch = c.createChannel();
        ch.confirmSelect();
        int number = 0, said = 0;
        List<String> again = new ArrayList<>();
        while (!stop || !again.isEmpty()) {
            List<String> batch = new ArrayList<>(again);
            again.clear();
            while (batch.size() < BATCH && !stop) {
                batch.add("" + number++);
            }
            boolean all = false;
            try {
                for (String name : batch) {
                    published.add(name);
                    ch.basicPublish("", queue, true, new AMQP.BasicProperties.Builder().deliveryMode(2).messageId(name).build(), name.getBytes());
                }
                all = ch.waitForConfirms(30_000);
            } catch (AlreadyClosedException | IOException | IllegalStateException e) {
                Thread.sleep(50); // the client connects again by itself
            } catch (ShutdownSignalException | TimeoutException e) {
                Thread.sleep(50);
            }
            if (all) {
                confirmed.addAll(batch);
            } else {
                failures.incrementAndGet();
                for (String name : batch) {
                    again.add(name + "+");
                }
            }
            if (confirmed.size() >= said + 50) {
                said = confirmed.size();
                say("confirmed " + said);
            }
        }
    }

    static void consume(Connection c) throws Exception {
        Channel ch = c.createChannel();
        ch.basicQos(20);
        ch.basicConsume(queue, false, new DefaultConsumer(ch) {
            @Override
            public void handleDelivery(String tag, Envelope e, AMQP.BasicProperties p, byte[] body) throws IOException {
                String name = new String(body);
                if (!name.equals(p.getMessageId())) {
                    faults.add(p.getMessageId() + " came as " + name);
                }
                if (got.merge(name, 1, Integer::sum) > 1 && !e.isRedeliver()) {
                    faults.add(name + " came twice");
                }
                try {
                    ch.basicAck(e.getDeliveryTag(), false);
                } catch (AlreadyClosedException closed) {
                    // it comes again
                }
            }
        });
    }

    public static void main(String[] args) throws Exception {
        queue = args[0];
        List<Address> forward = new ArrayList<>(), backward = new ArrayList<>();
        for (int i = 1; i < args.length; i++) {
            URI u = new URI(args[i]);
            Address a = new Address(u.getHost(), u.getPort());
            forward.add(a);
            backward.add(0, a);
        }
        Connection out = connect(forward, publisherRecoveries), in = connect(backward, consumerRecoveries);
        consume(in);
        Thread publisher = new Thread(() -> {
            try {
                publish(out);
            } catch (Exception e) {
                faults.add("the publisher ended with " + e);
            }
        });
        publisher.start();
        BufferedReader words = new BufferedReader(new InputStreamReader(System.in));
        for (String word; (word = words.readLine()) != null && !word.equals("stop"); ) {
            if (word.equals("mark")) {
                int lost = failures.get() + publisherRecoveries.get() + consumerRecoveries.get();
                verdict("the end of the leader fails no publish on another node", lost == 0, failures + " failures");
            }
        }
        stop = true;
        publisher.join(60_000);
        Set<String> missing = new TreeSet<>(confirmed);
        for (long end = System.currentTimeMillis() + 60_000; System.currentTimeMillis() < end; Thread.sleep(50)) {
            missing.removeAll(got.keySet());
            if (missing.isEmpty()) {
                break;
            }
        }
        verdict("nothing confirmed is lost", missing.isEmpty(), missing.size() + " of " + confirmed.size() + ": " + missing);
        verdict("what comes twice says so", faults.isEmpty(), faults);
        Set<String> invented = new TreeSet<>(got.keySet());
        invented.removeAll(published);
        verdict("nothing comes that was not published", invented.isEmpty(), invented);
        verdict("both are recovered by the client", publisherRecoveries.get() > 0 && consumerRecoveries.get() > 0,
                publisherRecoveries + " and " + consumerRecoveries);
        System.err.println(confirmed.size() + " confirmed, " + published.size() + " published, " + got.size() + " came, recoveries "
                + publisherRecoveries + " and " + consumerRecoveries);
        boolean good = true;
        for (String line : verdicts) {
            say(line);
            good &= line.startsWith("ok");
        }
        System.exit(good ? 0 : 1);
    }
}
