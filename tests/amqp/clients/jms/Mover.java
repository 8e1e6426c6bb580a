// Moves messages from one queue to another in transactions, for ever and over every cut: Mover URL FROM TO.
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Mover {
    static final int AT_ONCE = 50;

    public static void main(String[] arguments) throws InterruptedException {
        while (true) {
            try (Connection connection = new JmsConnectionFactory(arguments[0]).createConnection()) {
                connection.start();
                move(connection, arguments[1], arguments[2]);
            } catch (JMSException error) {
                System.out.println(error);
                Thread.sleep(100);
            }
        }
    }

    static void move(Connection connection, String from, String to) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(from));
        MessageProducer producer = session.createProducer(session.createQueue(to));
        while (true) {
            Message message = consumer.receive(1000);
            for (int count = 1; message != null; count++) {
                producer.send(message);
                message = count < AT_ONCE ? consumer.receiveNoWait() : null;
            }
            session.commit();
        }
    }
}
