// Sends and receives with rhea, which nobody of this project wrote: node client.js PORT QUEUE.
const rhea = require('rhea');
const [port, queue] = process.argv.slice(2);
const bodies = ['', 'js', 'x'.repeat(1 << 20), 'y'.repeat(4000000)].map(text => rhea.message.data_section(Buffer.from(text)));
const connection = rhea.connect({ host: '127.0.0.1', port: Number(port), username: 'anonymous', reconnect: true });
let accepted = 0, received = 0, returned = false, receiver;

function fail(why) { console.log('failed: ' + why); process.exit(1); }
function same(message, body) { return Buffer.compare(Buffer.from(message.body.content), body.content) === 0; }

const sender = connection.open_sender({ target: queue, autosettle: true });
let sent = 0;
sender.on('sendable', () => {
  while (sender.sendable() && sent < bodies.length) {
    sender.send({ body: bodies[sent], durable: true, subject: 'n' + sent, message_id: sent, application_properties: { tenant: 'blue' } });
    sent += 1;
  }
});
sender.on('rejected', context => fail(context.delivery.remote_state.error.condition));
sender.on('accepted', () => {
  accepted += 1;
  if (accepted === bodies.length) browse();
});

function browse() {
  const browser = connection.open_receiver({ source: { address: queue, distribution_mode: 'copy' }, credit_window: 1000 });
  let seen = 0;
  browser.on('message', context => {
    if (!same(context.message, bodies[seen])) fail('the browser sees another message');
    seen += 1;
    if (seen === bodies.length) { browser.close(); receive(); }
  });
}

function receive() {
  receiver = connection.open_receiver({ source: queue, credit_window: 0, autoaccept: false });
  receiver.add_credit(1);
  receiver.on('message', context => {
    if (!same(context.message, bodies[received])) fail('another message than was sent: ' + received);
    if (context.message.application_properties.tenant !== 'blue') fail('no properties');
    if (!returned) {
      returned = true;
      context.delivery.release();
    } else {
      received += 1;
      context.delivery.accept();
    }
    if (received < bodies.length) receiver.add_credit(1);
    else cut();
  });
}

function cut() {
  const last = connection.open_sender('cut');
  connection.once('disconnected', () => connection.once('connection_open', again));
  last.once('sendable', () => last.send({ body: 'cut', durable: true }));
}

function again() {
  receiver.removeAllListeners('message');
  receiver.on('message', context => {
    if (context.message.body !== 'again') fail('another message after the cut: ' + context.message.body);
    context.delivery.accept();
    refuse();
  });
  receiver.add_credit(1000);
  sender.once('sendable', () => sender.send({ body: 'again', durable: true }));
}

function refuse() {
  const wrong = connection.open_sender('nothing');
  wrong.on('sender_error', context => {
    console.log('refused: ' + context.sender.error.condition);
    leave();
  });
}
// Messages that are settled already, with the end of their link and of the connection right behind them.
function leave() {
  receiver.close();
  const settled = connection.open_sender({ target: queue, snd_settle_mode: 1 });
  settled.once('sendable', () => {
    for (let number = 0; number < 20; number++) {
      settled.send({ body: rhea.message.data_section(Buffer.alloc(200000, 'a'.charCodeAt(0) + number)), durable: true });
    }
    settled.close();
    connection.close();
  });
}
connection.on('connection_close', () => { console.log('done'); process.exit(0); });
connection.on('connection_error', context => fail(context.connection.error));
setTimeout(() => fail('it takes too long'), 60000);
