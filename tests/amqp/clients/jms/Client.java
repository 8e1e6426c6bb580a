// Sends, browses, receives and moves in transactions with Qpid JMS, which nobody of this project wrote: Client URL.
import java.lang.reflect.Proxy;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import javax.jms.TextMessage;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsConnectionListener;

public class Client {
    static final int LARGEST = 4_000_000;

    static void check(boolean holds, String what) {
        if (!holds) {
            System.out.println("failed: " + what);
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = new JmsConnectionFactory(arguments[0]).createConnection()) {
            connection.start();
            plain(connection);
            asks(connection);
            kinds(connection);
            topics(connection);
            later(connection);
            transacted(connection);
            refused(connection);
        }
        quiet(arguments[0] + "&amqp.idleTimeout=1000");
        String failover = "failover:(" + arguments[0] + ")?failover.nested.jms.username=x";
        for (int credit : new int[] {1, 1000}) {
            String uri = failover + "&jms.prefetchPolicy.all=" + credit;
            try (Connection connection = new JmsConnectionFactory(uri).createConnection()) {
                connection.start();
                again(connection, credit == 1);
            }
        }
        System.out.println("done");
    }

    /** Sends and receives with so much credit; after a cut of the connection, if there is to be one. */
    static void again(Connection connection, boolean cut) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue orders = session.createQueue("orders");
        MessageProducer producer = session.createProducer(orders);
        MessageConsumer consumer = session.createConsumer(orders);
        for (int number = 0; number < 5; number++) {
            if (cut && number == 2) {
                CountDownLatch restored = new CountDownLatch(1);
                Class<?>[] kinds = {JmsConnectionListener.class};
                ((JmsConnection) connection).addConnectionListener((JmsConnectionListener) Proxy.newProxyInstance(
                    Client.class.getClassLoader(), kinds, (self, method, values) -> {
                        if (method.getName().equals("onConnectionRestored")) {
                            restored.countDown();
                        }
                        return null;
                    }));
                session.createProducer(session.createQueue("cut")).send(session.createTextMessage("cut"));
                check(restored.await(20, TimeUnit.SECONDS), "no cut");
            }
            producer.send(session.createTextMessage("again " + number));
            TextMessage message = (TextMessage) consumer.receive(20000);
            check(message != null && message.getText().equals("again " + number), "after the cut: " + message);
        }
        session.close();
    }

    /** Delays a message; the receiver sees when it was to be delivered. */
    static void later(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue orders = session.createQueue("orders");
        MessageProducer producer = session.createProducer(orders);
        producer.setDeliveryDelay(500);
        TextMessage sent = session.createTextMessage("later");
        producer.send(sent);
        Message message = session.createConsumer(orders).receive(20000);
        check(message != null && System.currentTimeMillis() >= sent.getJMSDeliveryTime(), "early: " + message);
        check(message.getJMSDeliveryTime() == sent.getJMSDeliveryTime(), "another delivery time");
        session.close();
    }

    static void plain(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue orders = session.createQueue("orders");
        MessageProducer producer = session.createProducer(orders);
        TextMessage text = session.createTextMessage("Grüße");
        text.setStringProperty("tenant", "blue");
        text.setIntProperty("number", 7);
        text.setJMSReplyTo(session.createQueue("answers"));
        text.setJMSCorrelationID("mine");
        producer.send(text, javax.jms.DeliveryMode.PERSISTENT, 9, 60000);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[LARGEST]);
        producer.send(bytes);
        producer.send(session.createBytesMessage());
        MapMessage map = session.createMapMessage();
        map.setInt("a", 1);
        producer.send(map);
        List<?> browsed = Collections.list(session.createBrowser(orders).getEnumeration());
        check(browsed.size() == 4, "the browser sees " + browsed.size() + " messages");
        MessageConsumer consumer = session.createConsumer(orders);
        TextMessage first = (TextMessage) consumer.receive(10000);
        check(first.getText().equals("Grüße"), "another text: " + first.getText());
        check(first.getStringProperty("tenant").equals("blue") && first.getIntProperty("number") == 7, "properties");
        check(first.getJMSReplyTo().toString().equals("answers"), "reply-to: " + first.getJMSReplyTo());
        check(first.getJMSCorrelationID().equals("mine"), "correlation: " + first.getJMSCorrelationID());
        check(first.getJMSMessageID().equals(text.getJMSMessageID()), "message-id: " + first.getJMSMessageID());
        check(((BytesMessage) consumer.receive(10000)).getBodyLength() == LARGEST, "bytes");
        check(((BytesMessage) consumer.receive(10000)).getBodyLength() == 0, "no bytes");
        check(((MapMessage) consumer.receive(10000)).getInt("a") == 1, "map");
        check(consumer.receiveNoWait() == null, "more messages than were sent");
        session.close();
    }

    /** Properties of each type, a text beyond all limits on what is shown, and a reply-to that is a topic. */
    static void kinds(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue orders = session.createQueue("orders");
        TextMessage sent = session.createTextMessage("ä".repeat(600_000));
        sent.setByteProperty("byte", (byte) -7);
        sent.setShortProperty("short", (short) -300);
        sent.setLongProperty("long", 7);
        sent.setFloatProperty("float", 0.1f);
        sent.setDoubleProperty("double", 0.1);
        sent.setJMSReplyTo(session.createTopic("news"));
        session.createProducer(orders).send(sent, javax.jms.DeliveryMode.PERSISTENT, 0, 0);
        MessageConsumer consumer = session.createConsumer(orders);
        TextMessage found = (TextMessage) consumer.receive(20000);
        check(found.getText().equals(sent.getText()), "a text of " + found.getText().length() + " characters");
        check(found.getByteProperty("byte") == -7 && found.getShortProperty("short") == -300, "byte and short");
        check(found.getObjectProperty("long").equals(7L) && found.getFloatProperty("float") == 0.1f, "long and float");
        check(found.getDoubleProperty("double") == 0.1, "double");
        check(found.getJMSReplyTo() instanceof javax.jms.Topic, "reply-to: " + found.getJMSReplyTo().getClass());
        check(found.getJMSPriority() == 0, "priority: " + found.getJMSPriority());
        session.close();
    }

    /** A question and its answer in a temporary queue, both by producers without a destination. */
    static void asks(Connection connection) throws JMSException {
        String order = "";
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue orders = session.createQueue("orders");
        javax.jms.TemporaryQueue answers = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(answers);
        MessageProducer producer = session.createProducer(null);
        TextMessage question = session.createTextMessage("how many?");
        question.setJMSReplyTo(answers);
        producer.send(orders, question);
        MessageConsumer answering = session.createConsumer(orders);
        Message asked = answering.receive(20000);
        answering.close();
        TextMessage answer = session.createTextMessage("three");
        answer.setJMSCorrelationID(asked.getJMSMessageID());
        producer.send(asked.getJMSReplyTo(), answer);
        TextMessage found = (TextMessage) consumer.receive(20000);
        check(found != null && found.getText().equals("three"), "answer: " + found);
        check(found.getJMSCorrelationID().equals(question.getJMSMessageID()), "of another question");
        consumer.close();
        answers.delete();
        for (int number = 0; number < 4; number++) {
            TextMessage one = session.createTextMessage("" + number);
            one.setIntProperty("number", number);
            one.setJMSCorrelationID("of " + number);
            producer.send(orders, one);
        }
        for (String selector : List.of("JMSCorrelationID = 'of 2'", "number BETWEEN 2 AND 9", "number < 9", "TRUE")) {
            MessageConsumer selecting = session.createConsumer(orders, selector);
            TextMessage one = (TextMessage) selecting.receive(20000);
            check(one != null && "2301".startsWith(one.getText(), order.length()), selector + ": " + one);
            order += one.getText();
            selecting.close();
        }
        check(order.equals("2301"), "another order: " + order);
        session.close();
    }

    /** Neither subscribers nor publishers get a topic. */
    static void topics(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        javax.jms.Topic orders = session.createTopic("orders");
        int refused = 0;
        for (int kind = 0; kind < 2; kind++) {
            try {
                if (kind == 0) {
                    session.createConsumer(orders);
                } else {
                    session.createProducer(orders);
                }
            } catch (JMSException error) {
                refused++;
            }
        }
        check(refused == 2, "a topic was opened");
        session.close();
    }

    /** A connection that is cut unless the door sends something twice a second. */
    static void quiet(String uri) throws Exception {
        try (Connection connection = new JmsConnectionFactory(uri).createConnection()) {
            connection.start();
            Thread.sleep(2500);
            connection.createSession(false, Session.AUTO_ACKNOWLEDGE).close();
        }
    }

    static void transacted(Connection connection) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue exact = session.createQueue("exact");
        MessageProducer fill = session.createProducer(exact);
        for (int number = 0; number < 20; number++) {
            fill.send(session.createTextMessage("" + number));
        }
        session.commit();
        MessageConsumer consumer = session.createConsumer(exact);
        MessageProducer producer = session.createProducer(session.createQueue("done"));
        for (int number = 0; number < 20; number++) {
            if (number == 5) {
                producer.send(consumer.receive(10000));
                session.rollback();
            }
            TextMessage message = (TextMessage) consumer.receive(10000);
            check(message != null && message.getText().equals("" + number), "out of order at " + number);
            check(message.getJMSRedelivered() == (number == 5), "redelivered: " + number);
            producer.send(message);
            if (number % 4 == 0 || number == 4) {
                session.commit();
            }
        }
        session.commit();
        session.close();
    }

    static void refused(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        try {
            session.createProducer(session.createQueue("nothing"));
            check(false, "a queue that is not there was opened");
        } catch (JMSException error) {
            System.out.println("refused: " + error.getClass().getSimpleName());
        }
        Message none = session.createConsumer(session.createQueue("exact")).receive(200);
        check(none == null, "a message that was moved is still there");
    }
}
