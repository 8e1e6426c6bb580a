// Scenarios of the C interface from C#, with the declarations of mqrt/examples/Orders.cs and those below.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Runtime.Serialization.Formatters.Binary;
using System.Text;
using System.Threading;
using System.Xml.Serialization;

static class Scenarios
{
    [DllImport("mqrt.dll")]
    static extern uint MQReceiveMessageByLookupId(IntPtr queue, ulong lookup, uint action, Mq.Properties properties,
                                                  IntPtr overlapped, Mq.Callback callback, IntPtr transaction);
    [DllImport("mqrt.dll")]
    static extern uint MQCreateCursor(IntPtr queue, out IntPtr cursor);
    [DllImport("mqrt.dll")]
    static extern uint MQCloseCursor(IntPtr cursor);
    [DllImport("mqrt.dll")]
    static extern uint MQPurgeQueue(IntPtr queue);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    static extern uint MQGetQueueProperties(string name, Mq.Properties properties);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    static extern uint MQSetQueueProperties(string name, Mq.Properties properties);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    static extern uint MQHandleToFormatName(IntPtr queue, StringBuilder name, ref int length);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    static extern uint MQGetMachineProperties(string machine, IntPtr id, Mq.Properties properties);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    static extern uint MQLocateBegin(string context, IntPtr restriction, IntPtr columns, IntPtr sort, out IntPtr search);
    [DllImport("mqrt.dll")]
    static extern uint MQRegisterCertificate(uint flags, byte[] certificate, uint size);
    [DllImport("kernel32.dll", CharSet = CharSet.Unicode)]
    static extern bool GetComputerName(StringBuilder name, ref int size);
    [DllImport("kernel32.dll", SetLastError = true)]
    static extern bool GetHandleInformation(IntPtr handle, out int information);
    [DllImport("kernel32.dll", CharSet = CharSet.Unicode)]
    static extern int FormatMessage(int flags, IntPtr source, uint number, int language, StringBuilder text, int size,
                                    IntPtr arguments);
    [DllImport("ole32.dll")]
    static extern uint OleSaveToStream(IntPtr saved, IntPtr stream);

    const uint Priority = 4, Delivery = 5, Acknowledge = 6, Journal = 7, AppSpecific = 8, Body = 9, BodySize = 10, Label = 11,
               LabelLength = 12, BodyType = 42, MessageId = 2, Correlation = 3, LookupId = 60, Class = 1, Extension = 35,
               ExtensionLength = 36, PathName = 103, QueueJournal = 104, Quota = 105, QueueLabel = 108, Transaction = 113;
    const uint PropertyError = 0xC00E0002, QueueNotFound = 0xC00E0003, InvalidHandle = 0xC00E0007, NoDirectory = 0xC00E0013,
               AccessDenied = 0xC00E0025, TransactionUsage = 0xC00E0050, BufferOverflow = 0xC00E001A, IoTimeout = 0xC00E001B,
               Ignored = 0x400E0001, InvalidParameter = 0xC00E0006;
    static int number;

    class Pair
    {
        public string Path, Name;
        public IntPtr Out, In;
    }

    static void With(string name, Action<Pair> run, bool transactional = false)
    {
        Check.Scenario(name, () =>
        {
            Pair pair = new Pair { Path = @".\private$\csharp-" + ++number };
            StringBuilder made = new StringBuilder(256);
            int length = 256;
            using (List list = new List().Text(PathName, pair.Path).Byte(Transaction, (byte)(transactional ? 1 : 0)))
                Mq.Check(Mq.MQCreateQueue(IntPtr.Zero, list.Made(), made, ref length));
            pair.Name = made.ToString();
            Mq.Check(Mq.MQOpenQueue(pair.Name, 2, 0, out pair.Out));
            Mq.Check(Mq.MQOpenQueue(pair.Name, 1, 0, out pair.In));
            try
            {
                run(pair);
            }
            finally
            {
                Mq.MQCloseQueue(pair.Out);
                Mq.MQCloseQueue(pair.In);
                Mq.MQDeleteQueue(pair.Name);
            }
        });
    }

    static uint Send(IntPtr queue, List message, IntPtr transaction = default(IntPtr))
    {
        using (message)
            return Mq.MQSendMessage(queue, message.Made(), transaction);
    }
    static List Text(string text) { return new List().Body(Body, Encoding.UTF8.GetBytes(text)); }

    // The body of the next message, or null with the code of the failure.
    static string Next(IntPtr queue, out uint code, int action = 0, int room = 1000, IntPtr cursor = default(IntPtr),
                       IntPtr transaction = default(IntPtr), uint wait = 0)
    {
        using (List got = new List().Room(Body, room).Any(BodySize))
        {
            code = Mq.MQReceiveMessage(queue, wait, action, got.Made(), IntPtr.Zero, null, cursor, transaction);
            return (code & 0x80000000) != 0 ? null : Encoding.UTF8.GetString(got.Taken(0, room));
        }
    }
    static string Next(IntPtr queue, IntPtr transaction = default(IntPtr), int action = 0, IntPtr cursor = default(IntPtr))
    {
        uint code;
        string text = Next(queue, out code, action, 1000, cursor, transaction);
        Mq.Check(code);
        return text;
    }
    static void Fails(uint expected, uint found) { Check.Equal(expected.ToString("X8"), found.ToString("X8")); }

    // A number that is sent is received.
    static void Number(string name, uint id, uint value, bool isByte)
    {
        With(name + " " + value + " comes through", queue =>
        {
            List sent = isByte ? new List().Byte(id, (byte)value) : new List().UInt(id, value);
            Mq.Check(Send(queue.Out, sent));
            using (List got = new List().Any(id))
            {
                Mq.Check(Mq.MQReceiveMessage(queue.In, 0, 0, got.Made(), IntPtr.Zero, null, IntPtr.Zero, IntPtr.Zero));
                Check.Equal(value, isByte ? got[0].Byte : got[0].Number);
            }
        });
    }

    static void Numbers()
    {
        foreach (byte priority in new byte[] { 0, 3, 7 })
            Number("priority", Priority, priority, true);
        Number("delivery", Delivery, 0, true);
        Number("delivery", Delivery, 1, true);
        Number("an acknowledgment", Acknowledge, 5, true);
        Number("journaling", Journal, 3, true);
        Number("what is specific to applications", AppSpecific, 0xFFFFFFFF, false);
        Number("a type of body", BodyType, 31, false);
    }

    // What the formatters of System.Messaging write, made here by the same serializers, is equal to the vectors that qmnode is
    // tested with, and comes through as it is.
    static void Bodies(string vectors)
    {
        HashSet<string> known = new HashSet<string>(File.ReadAllLines(vectors).Select(line => line.Split('"')).Where(parts =>
            parts[3] == "xml" || parts[3] == "binary" || parts[3] == "nrbf").Select(parts => parts[9]));
        object[] values = {
            "hello", "Gr\u00fc\u00dfe <&> \u65e5\u672c\u8a9e", "", true, false, 42, int.MinValue, (short)-7, 1L << 40, 0.1, 1.5f, 12.50m,
            new DateTime(2026, 1, 2, 3, 4, 5), (byte)200, new[] { 1, 2, 3 }, new List<string> { "a", "", "c" }
        };
        foreach (object value in values)
        {
            object one = value;
            With("XML of " + one.GetType().Name + " " + one + " is a vector", queue =>
                Same(queue, known, 0, stream => new XmlSerializer(one.GetType()).Serialize(stream, one)));
            With("binary of " + one.GetType().Name + " " + one + " is a vector", queue =>
                Same(queue, known, 768, stream => new BinaryFormatter().Serialize(stream, one)));
        }
    }
    static void Same(Pair queue, HashSet<string> known, uint type, Action<Stream> write)
    {
        MemoryStream stream = new MemoryStream();
        write(stream);
        byte[] body = stream.ToArray();
        Check.That(known.Contains(Convert.ToBase64String(body)), "it is no vector of tests/bodies");
        Mq.Check(Send(queue.Out, new List().Body(Body, body).UInt(BodyType, type)));
        using (List got = new List().Room(Body, 10000).Any(BodySize).Any(BodyType))
        {
            Mq.Check(Mq.MQReceiveMessage(queue.In, 0, 0, got.Made(), IntPtr.Zero, null, IntPtr.Zero, IntPtr.Zero));
            Check.That(body.SequenceEqual(got.Taken(0, 10000)), "another body came");
            Check.Equal(type, got[2].Number);
        }
    }

    static void Reading()
    {
        uint code;
        With("messages keep their order", queue =>
        {
            foreach (string text in new[] { "a", "b", "c" }) Mq.Check(Send(queue.Out, Text(text)));
            Check.Equal("abc", Next(queue.In) + Next(queue.In) + Next(queue.In));
        });
        With("an empty queue times out", queue => { Next(queue.In, out code); Fails(IoTimeout, code); });
        With("a peek leaves the message", queue =>
        {
            Mq.Check(Send(queue.Out, Text("stays")));
            Check.Equal("stays", Next(queue.In, IntPtr.Zero, Mq.PeekCurrent));
            Check.Equal("stays", Next(queue.In));
        });
        With("a small buffer leaves the message", queue =>
        {
            Mq.Check(Send(queue.Out, Text("larger")));
            Next(queue.In, out code, 0, 3);
            Fails(BufferOverflow, code);
            Check.Equal("larger", Next(queue.In));
        });
        With("a label comes with its length", queue =>
        {
            Mq.Check(Send(queue.Out, new List().Text(Label, "Gr\u00fc\u00dfe")));
            using (List got = new List().TextRoom(Label, 250))
            {
                Mq.Check(Mq.MQReceiveMessage(queue.In, 0, 0, got.Made(), IntPtr.Zero, null, IntPtr.Zero, IntPtr.Zero));
                Check.Equal("Gr\u00fc\u00dfe", Marshal.PtrToStringUni(got[0].Text));
                Check.Equal(6u, got[1].Number);
            }
        });
        With("a cursor walks", queue =>
        {
            IntPtr cursor;
            foreach (string text in new[] { "a", "b" }) Mq.Check(Send(queue.Out, Text(text)));
            Mq.Check(MQCreateCursor(queue.In, out cursor));
            Check.Equal("a", Next(queue.In, IntPtr.Zero, Mq.PeekCurrent, cursor));
            Check.Equal("b", Next(queue.In, IntPtr.Zero, unchecked((int)0x80000001), cursor));
            Check.Equal("b", Next(queue.In, IntPtr.Zero, 0, cursor));
            Mq.Check(MQCloseCursor(cursor));
            Fails(InvalidHandle, MQCloseCursor(cursor));
        });
        With("a message is taken by its lookup identifier", queue =>
        {
            foreach (string text in new[] { "a", "b" }) Mq.Check(Send(queue.Out, Text(text)));
            using (List got = new List().Any(LookupId))
            {
                Mq.Check(MQReceiveMessageByLookupId(queue.In, 0, 0x40000018, got.Made(), IntPtr.Zero, null, IntPtr.Zero));
                Mq.Check(MQReceiveMessageByLookupId(queue.In, got[0].Long, 0x40000020, got.Made(), IntPtr.Zero, null, IntPtr.Zero));
            }
            Check.Equal("a", Next(queue.In));
            Next(queue.In, out code);
            Fails(IoTimeout, code);
        });
        With("a purge empties the queue", queue =>
        {
            Mq.Check(Send(queue.Out, Text("a")));
            Mq.Check(MQPurgeQueue(queue.In));
            Next(queue.In, out code);
            Fails(IoTimeout, code);
        });
        With("a callback gets the message", queue =>
        {
            using (List got = new List().Room(Body, 100).Any(BodySize))
            using (ManualResetEvent called = new ManualResetEvent(false))
            {
                IntPtr memory = Marshal.AllocHGlobal(Marshal.SizeOf(typeof(Mq.Properties)));
                Marshal.StructureToPtr(got.Made(), memory, false);
                uint outcome = 0;
                Mq.Callback callback = (result, one, timeout, action, properties, overlapped, cursor) => { outcome = result; called.Set(); };
                Mq.Check(Mq.MQReceiveLater(queue.In, 20000, 0, memory, IntPtr.Zero, callback, IntPtr.Zero, IntPtr.Zero));
                Mq.Check(Send(queue.Out, Text("late")));
                Check.That(called.WaitOne(20000), "it was not called");
                GC.KeepAlive(callback);
                Mq.Check(outcome);
                Check.Equal("late", Encoding.UTF8.GetString(got.Taken(0, 100)));
                Marshal.FreeHGlobal(memory);
            }
        });
        With("threads share a handle", queue =>
        {
            Thread[] threads = Enumerable.Range(0, 4).Select(_ => new Thread(() =>
            {
                for (int at = 0; at < 20; at++) Mq.Check(Send(queue.Out, Text("x")));
            })).ToArray();
            foreach (Thread thread in threads) thread.Start();
            foreach (Thread thread in threads) thread.Join();
            for (int at = 0; at < 80; at++) Next(queue.In);
        });
    }

    static void Transactions()
    {
        uint code;
        IntPtr single = new IntPtr(3);
        With("a commit sends", queue =>
        {
            IntPtr work;
            Mq.Check(Mq.MQBeginTransaction(out work));
            Mq.Check(Send(queue.Out, Text("a"), work));
            Next(queue.In, out code);
            Fails(IoTimeout, code);
            Orders.End(work, true);
            Check.Equal("a", Next(queue.In));
        }, true);
        With("an abort sends nothing", queue =>
        {
            IntPtr work;
            Mq.Check(Mq.MQBeginTransaction(out work));
            Mq.Check(Send(queue.Out, Text("a"), work));
            Orders.End(work, false);
            Next(queue.In, out code);
            Fails(IoTimeout, code);
        }, true);
        With("an aborted receive gives the message back", queue =>
        {
            IntPtr work;
            Mq.Check(Send(queue.Out, Text("a"), single));
            Mq.Check(Mq.MQBeginTransaction(out work));
            Check.Equal("a", Next(queue.In, work));
            Orders.End(work, false);
            Check.Equal("a", Next(queue.In, single));
        }, true);
        With("a transactional queue needs a transaction", queue => Fails(TransactionUsage, Send(queue.Out, Text("a"))), true);
        With("a plain queue takes none", queue => Fails(TransactionUsage, Send(queue.Out, Text("a"), single)));
    }

    static void Errors()
    {
        IntPtr none;
        With("a sending handle does not receive", queue => { uint code; Next(queue.Out, out code); Fails(AccessDenied, code); });
        With("a receiving handle does not send", queue => Fails(AccessDenied, Send(queue.In, Text("a"))));
        With("a priority above seven is refused", queue => Fails(PropertyError, Send(queue.Out, new List().Byte(Priority, 8))));
        With("a property of receivers is ignored", queue => Fails(Ignored, Send(queue.Out, new List().Byte(25, 1))));
        With("a queue is made once", queue =>
        {
            int length = 256;
            using (List list = new List().Text(PathName, queue.Path))
                Fails(Mq.QueueExists, Mq.MQCreateQueue(IntPtr.Zero, list.Made(), new StringBuilder(256), ref length));
        });
        Check.Scenario("a queue that is not there is not opened", () =>
        {
            Fails(QueueNotFound, Mq.MQOpenQueue(@"DIRECT=OS:.\private$\not-there", 1, 0, out none));
            Check.That(Marshal.PtrToStringAnsi(Mq.mqrt_last_sentence()).Length > 0);
        });
        Check.Scenario("a queue that is not there is not deleted",
                       () => Fails(QueueNotFound, Mq.MQDeleteQueue(@"DIRECT=OS:.\private$\not-there")));
        Check.Scenario("what is no handle is refused", () => Fails(InvalidHandle, Mq.MQCloseQueue(new IntPtr(12345))));
        Check.Scenario("a search needs a directory", () =>
        {
            IntPtr columns = Marshal.AllocHGlobal(16), ids = Marshal.AllocHGlobal(4);
            Marshal.WriteInt32(ids, 101);
            Marshal.WriteInt32(columns, 1);
            Marshal.WriteIntPtr(columns, 8, ids);
            Fails(NoDirectory, MQLocateBegin(null, IntPtr.Zero, columns, IntPtr.Zero, out none));
            Marshal.FreeHGlobal(ids);
            Marshal.FreeHGlobal(columns);
        });
        Check.Scenario("a certificate needs a directory", () => Fails(NoDirectory, MQRegisterCertificate(1, new byte[] { 0x30, 0 }, 2)));
    }

    static void Queues()
    {
        With("a label of a queue is kept", queue =>
        {
            using (List list = new List().Text(QueueLabel, "new"))
                Mq.Check(MQSetQueueProperties(queue.Name, list.Made()));
            using (List list = new List().Any(QueueLabel))
            {
                Mq.Check(MQGetQueueProperties(queue.Name, list.Made()));
                Check.Equal("new", Marshal.PtrToStringUni(list[0].Text));
                Mq.MQFreeMemory(list[0].Text);
            }
        });
        With("journaling and a quota are kept", queue =>
        {
            using (List list = new List().Byte(QueueJournal, 1).UInt(Quota, 500))
                Mq.Check(MQSetQueueProperties(queue.Name, list.Made()));
            using (List list = new List().Any(QueueJournal).Any(Quota))
            {
                Mq.Check(MQGetQueueProperties(queue.Name, list.Made()));
                Check.That(list[0].Byte == 1 && list[1].Number == 500);
            }
        });
        With("a handle has a format name", queue =>
        {
            StringBuilder name = new StringBuilder(256);
            int length = 256;
            Mq.Check(MQHandleToFormatName(queue.In, name, ref length));
            Check.That(name.Length + 1 == length && name.Length > 10);
        });
        Check.Scenario("the machine has a name, and kernel32 the same", () =>
        {
            StringBuilder name = new StringBuilder(256);
            int size = 256;
            Check.That(GetComputerName(name, ref size));
            using (List list = new List().Any(203))
            {
                Mq.Check(MQGetMachineProperties(null, IntPtr.Zero, list.Made()));
                Check.Equal(Marshal.PtrToStringUni(list[0].Text), name.ToString());
                Mq.MQFreeMemory(list[0].Text);
            }
            size = 1;
            Check.That(!GetComputerName(name, ref size) && size > 1, "a name had room in one letter");
        });
        Check.Scenario("a handle is none of the kernel", () =>
        {
            int information;
            Check.That(!GetHandleInformation(new IntPtr(3), out information));
            Check.Equal(50, Marshal.GetLastWin32Error());
        });
        Check.Scenario("an error has a text", () =>
        {
            StringBuilder text = new StringBuilder(256);
            Check.That(FormatMessage(0x3200, IntPtr.Zero, QueueNotFound, 0, text, 257, IntPtr.Zero) > 0);
            Check.That(text.ToString().StartsWith("MQ_ERROR_QUEUE_NOT_FOUND"), text.ToString());
            Check.Equal(0, FormatMessage(0x3200, IntPtr.Zero, 5, 0, text, 257, IntPtr.Zero));
        });
        Check.Scenario("no COM object is saved", () => Fails(0x80004001, OleSaveToStream(IntPtr.Zero, IntPtr.Zero)));
    }

    static int Main(string[] words)
    {
        Numbers();
        Bodies(words[0]);
        Reading();
        Transactions();
        Errors();
        Queues();
        return Check.Failed == 0 ? 0 : 1;
    }
}
