// Apache ActiveMQ Artemis in this process, its journal in a folder: Broker PORT FOLDER QUEUE...
import java.io.File;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.ActiveMQServers;
import org.apache.activemq.artemis.core.server.ActiveMQServer;
import org.apache.activemq.artemis.core.server.JournalType;

public class Broker {
    public static void main(String[] arguments) throws Exception {
        String folder = arguments[1] + File.separator;
        ConfigurationImpl configuration = new ConfigurationImpl();
        configuration.setSecurityEnabled(false);
        configuration.setPersistenceEnabled(true);
        configuration.setJournalType(JournalType.NIO);
        configuration.setJournalFileSize(8 << 20);
        configuration.setJournalDirectory(folder + "journal");
        configuration.setBindingsDirectory(folder + "bindings");
        configuration.setLargeMessagesDirectory(folder + "large");
        configuration.setPagingDirectory(folder + "paging");
        configuration.setMaxDiskUsage(-1);
        configuration.addAcceptorConfiguration("amqp", "tcp://127.0.0.1:" + arguments[0] + "?protocols=AMQP");
        ActiveMQServer server = ActiveMQServers.newActiveMQServer(configuration);
        server.start();
        for (int index = 2; index < arguments.length; index++) {
            QueueConfiguration queue = QueueConfiguration.of(arguments[index]).setRoutingType(RoutingType.ANYCAST);
            if (server.locateQueue(queue.getName()) == null) server.createQueue(queue);
        }
        System.out.println("ready");
        System.in.read();
        server.stop();
        System.exit(0);
    }
}
