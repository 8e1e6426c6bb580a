// Sends one message with the trace context of its program, as instrumented JMS producers do: Producer URL QUEUE TRACEPARENT.
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.Session;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Producer {
    public static void main(String[] arguments) throws JMSException {
        try (Connection connection = new JmsConnectionFactory(arguments[0]).createConnection()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Message message = session.createTextMessage("order 7");
            message.setStringProperty("traceparent", arguments[2]);
            session.createProducer(session.createQueue(arguments[1])).send(message);
        }
    }
}
