// Sends, browses, receives and moves in transactions with Qpid JMS, which nobody of this project wrote: Client URL.
import java.util.Collections;
import java.util.List;
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
import org.apache.qpid.jms.JmsConnectionFactory;

public class Client {
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
            transacted(connection);
            refused(connection);
        }
        System.out.println("done");
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
        bytes.writeBytes(new byte[2 << 20]);
        producer.send(bytes);
        MapMessage map = session.createMapMessage();
        map.setInt("a", 1);
        producer.send(map);
        List<?> browsed = Collections.list(session.createBrowser(orders).getEnumeration());
        check(browsed.size() == 3, "the browser sees " + browsed.size() + " messages");
        MessageConsumer consumer = session.createConsumer(orders);
        TextMessage first = (TextMessage) consumer.receive(10000);
        check(first.getText().equals("Grüße"), "another text: " + first.getText());
        check(first.getStringProperty("tenant").equals("blue") && first.getIntProperty("number") == 7, "properties");
        check(first.getJMSReplyTo().toString().equals("answers"), "reply-to: " + first.getJMSReplyTo());
        check(first.getJMSCorrelationID().equals("mine"), "correlation: " + first.getJMSCorrelationID());
        check(first.getJMSMessageID().equals(text.getJMSMessageID()), "message-id: " + first.getJMSMessageID());
        check(((BytesMessage) consumer.receive(10000)).getBodyLength() == 2 << 20, "bytes");
        check(((MapMessage) consumer.receive(10000)).getInt("a") == 1, "map");
        check(consumer.receiveNoWait() == null, "more messages than were sent");
        session.close();
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
