import examples.AmqpClientExamples;
import io.vertx.amqp.AmqpClient;
import io.vertx.amqp.AmqpClientOptions;
import io.vertx.amqp.AmqpConnection;
import io.vertx.core.Vertx;
import java.io.PrintStream;
import java.lang.reflect.Proxy;

/** Gives the sample a connection whose asking part is at one node, and whose answering part at another. */
public class Main {
    public static void main(String[] args) throws Exception {
        Vertx vertx = Vertx.vertx();
        AmqpConnection asking = connect(vertx, args[0]);
        AmqpConnection answering = connect(vertx, args[1]);
        AmqpConnection both = (AmqpConnection) Proxy.newProxyInstance(
            Main.class.getClassLoader(), new Class<?>[] {AmqpConnection.class}, (proxy, method, given) -> {
                switch (method.getName()) {
                    case "createDynamicReceiver":
                        return method.invoke(asking, given);
                    case "createSender":
                        return asking.createSender(args[2]);
                    default:
                        return method.invoke(answering, given);
                }
            });
        System.setOut(new PrintStream(System.out, true) {  // the sample goes on for ever
            @Override
            public void println(String line) {
                super.println(line);
                System.exit(0);
            }
        });
        new AmqpClientExamples().requestReply(both);
    }

    private static AmqpConnection connect(Vertx vertx, String host) throws Exception {
        AmqpClientOptions options = new AmqpClientOptions().setHost(host).setPort(5672);
        return AmqpClient.create(vertx, options).connect().toCompletionStage().toCompletableFuture().get();
    }
}
