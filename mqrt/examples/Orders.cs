// Message Queuing in C# by P/Invoke, with declarations of its own: send, peek, receive, be called back, enumerate, and
// read an error. Under Mono:
//
//     mcs Orders.cs && mono Orders.exe
//
// Orders.exe.config says that mqrt.dll is libmqrt.so.1.
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;

static class Mq
{
    public const int Receive = 0, PeekCurrent = unchecked((int)0x80000000);
    public const uint Infinite = 0xFFFFFFFF;
    public const uint QueueExists = 0xC00E0005, IoTimeout = 0xC00E001B, BufferOverflow = 0xC00E001A, Pending = 0x400E0006;

    [StructLayout(LayoutKind.Explicit, Size = 24)]
    public struct Variant
    {
        [FieldOffset(0)] public ushort Type;
        [FieldOffset(8)] public byte Byte;
        [FieldOffset(8)] public uint Number;
        [FieldOffset(8)] public ulong Long;
        [FieldOffset(8)] public IntPtr Text;
        [FieldOffset(8)] public uint Count;
        [FieldOffset(16)] public IntPtr Items;
    }

    [StructLayout(LayoutKind.Sequential)]
    public class Properties
    {
        public int Count;
        public IntPtr Ids, Values, Statuses;
    }

    // ITransaction, as an object with a table of functions.
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    public delegate uint End(IntPtr self, int retaining, uint one, uint other);
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    public delegate uint Release(IntPtr self);
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    public delegate void Callback(uint code, IntPtr queue, uint timeout, int action, IntPtr properties, IntPtr overlapped,
                                  IntPtr cursor);

    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    public static extern uint MQOpenQueue(string name, int access, int share, out IntPtr queue);
    [DllImport("mqrt.dll")]
    public static extern uint MQCloseQueue(IntPtr queue);
    [DllImport("mqrt.dll")]
    public static extern uint MQSendMessage(IntPtr queue, Properties properties, IntPtr transaction);
    [DllImport("mqrt.dll")]
    public static extern uint MQReceiveMessage(IntPtr queue, uint timeout, int action, Properties properties,
                                               IntPtr overlapped, Callback callback, IntPtr cursor, IntPtr transaction);
    [DllImport("mqrt.dll", EntryPoint = "MQReceiveMessage")]
    public static extern uint MQReceiveLater(IntPtr queue, uint timeout, int action, IntPtr properties,
                                             IntPtr overlapped, Callback callback, IntPtr cursor, IntPtr transaction);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    public static extern uint MQCreateQueue(IntPtr security, Properties properties, StringBuilder name, ref int length);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    public static extern uint MQDeleteQueue(string name);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    public static extern uint MQPathNameToFormatName(string path, StringBuilder name, ref int length);
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    public static extern uint MQMgmtGetInfo(string computer, string what, Properties properties);
    [DllImport("mqrt.dll")]
    public static extern uint MQBeginTransaction(out IntPtr transaction);
    [DllImport("mqrt.dll")]
    public static extern void MQFreeMemory(IntPtr memory);
    [DllImport("mqrt.dll")]
    public static extern IntPtr mqrt_last_sentence();

    public static uint Check(uint code, params uint[] expected)
    {
        if ((code & 0x80000000) != 0 && Array.IndexOf(expected, code) < 0)
            throw new Exception("0x" + code.ToString("X8") + ": " + Marshal.PtrToStringAnsi(mqrt_last_sentence()));
        return code;
    }
}

// A list of properties in memory that the library reads and writes.
class List : IDisposable
{
    public const ushort Null = 1, UI1 = 17, UI4 = 19, Lpwstr = 31, Bytes = 0x1011;
    readonly List<IntPtr> owned = new List<IntPtr>();
    readonly List<uint> ids = new List<uint>();
    readonly List<Mq.Variant> values = new List<Mq.Variant>();
    IntPtr array;
    public Mq.Properties Properties = new Mq.Properties();

    IntPtr Own(int size)
    {
        IntPtr memory = Marshal.AllocHGlobal(Math.Max(size, 1));
        owned.Add(memory);
        return memory;
    }
    public List Text(uint id, string text)
    {
        IntPtr memory = Marshal.StringToHGlobalUni(text);
        owned.Add(memory);
        return Add(id, new Mq.Variant { Type = Lpwstr, Text = memory });
    }
    public List Body(uint id, byte[] bytes)
    {
        IntPtr memory = Own(bytes.Length);
        Marshal.Copy(bytes, 0, memory, bytes.Length);
        return Add(id, new Mq.Variant { Type = Bytes, Count = (uint)bytes.Length, Items = memory });
    }
    public List Room(uint id, int size) { return Add(id, new Mq.Variant { Type = Bytes, Count = (uint)size, Items = Own(size) }); }
    public List Byte(uint id, byte value) { return Add(id, new Mq.Variant { Type = UI1, Byte = value }); }
    public List UInt(uint id, uint value) { return Add(id, new Mq.Variant { Type = UI4, Number = value }); }
    // Room for a text, and its length in the property behind.
    public List TextRoom(uint id, int letters)
    {
        return Add(id, new Mq.Variant { Type = Lpwstr, Text = Own(2 * letters) }).UInt(id + 1, (uint)letters);
    }
    public List Any(uint id) { return Add(id, new Mq.Variant { Type = Null }); }
    List Add(uint id, Mq.Variant value) { ids.Add(id); values.Add(value); return this; }

    public Mq.Properties Made()
    {
        int size = Marshal.SizeOf(typeof(Mq.Variant));
        IntPtr numbers = Own(4 * ids.Count);
        array = Own(size * ids.Count);
        for (int at = 0; at < ids.Count; at++)
        {
            Marshal.WriteInt32(numbers, 4 * at, (int)ids[at]);
            Marshal.StructureToPtr(values[at], array + size * at, false);
        }
        Properties.Count = ids.Count;
        Properties.Ids = numbers;
        Properties.Values = array;
        return Properties;
    }
    public Mq.Variant this[int at]
    {
        get
        {
            int size = Marshal.SizeOf(typeof(Mq.Variant));
            return (Mq.Variant)Marshal.PtrToStructure(array + size * at, typeof(Mq.Variant));
        }
    }
    public byte[] Taken(int at, int size)
    {
        byte[] bytes = new byte[this[at + 1].Number];
        Marshal.Copy(this[at].Items, bytes, 0, bytes.Length);
        return bytes;
    }
    public void Dispose() { foreach (IntPtr memory in owned) Marshal.FreeHGlobal(memory); }
}

static class Orders
{
    const uint Body = 9, BodySize = 10, Label = 11, PathName = 103, Transaction = 113, PrivateQueues = 2;

    static string Create(string path)
    {
        StringBuilder name = new StringBuilder(256);
        int length = 256;
        using (List made = new List().Text(PathName, path).Byte(Transaction, 1))
            if (Mq.Check(Mq.MQCreateQueue(IntPtr.Zero, made.Made(), name, ref length), Mq.QueueExists) == Mq.QueueExists)
            {
                length = 256;
                Mq.Check(Mq.MQPathNameToFormatName(path, name, ref length));
            }
        return name.ToString();
    }

    static void Send(IntPtr queue, string text, IntPtr transaction)
    {
        using (List sent = new List().Body(Body, Encoding.UTF8.GetBytes(text)).Text(Label, "order"))
            Mq.Check(Mq.MQSendMessage(queue, sent.Made(), transaction));
    }

    // When the buffer is too small, the message stays and its size is known.
    static string Next(IntPtr queue, int action, IntPtr transaction)
    {
        for (int room = 4; ;)
            using (List got = new List().Room(Body, room).Any(BodySize))
            {
                uint code = Mq.MQReceiveMessage(queue, 0, action, got.Made(), IntPtr.Zero, null, IntPtr.Zero, transaction);
                if (Mq.Check(code, Mq.BufferOverflow, Mq.IoTimeout) == Mq.IoTimeout)
                    return null;
                if (code != Mq.BufferOverflow)
                    return Encoding.UTF8.GetString(got.Taken(0, room));
                room = (int)got[1].Number;
            }
    }

    // Entries of ITransaction's table: 2 is Release, 3 Commit, 4 Abort.
    static T Entry<T>(IntPtr transaction, int number) where T : class
    {
        IntPtr table = Marshal.ReadIntPtr(transaction);
        return (T)(object)Marshal.GetDelegateForFunctionPointer(Marshal.ReadIntPtr(table, number * IntPtr.Size), typeof(T));
    }
    public static void End(IntPtr transaction, bool commit)
    {
        Mq.Check(Entry<Mq.End>(transaction, commit ? 3 : 4)(transaction, 0, 0, 0));
        Entry<Mq.Release>(transaction, 2)(transaction);
    }

    static void Main()
    {
        string name = Create(@".\private$\orders-in-csharp");
        IntPtr output, input, work;
        Mq.Check(Mq.MQOpenQueue(name, 2, 0, out output));
        Mq.Check(Mq.MQOpenQueue(name, 1, 0, out input));

        Mq.Check(Mq.MQBeginTransaction(out work));
        Send(output, "seven screws", work);
        Send(output, "a hammer", work);
        End(work, true);
        Console.WriteLine("peeked: " + Next(input, Mq.PeekCurrent, IntPtr.Zero));

        Mq.Check(Mq.MQBeginTransaction(out work));
        Console.WriteLine("received and given back: " + Next(input, Mq.Receive, work));
        End(work, false);
        Mq.Check(Mq.MQBeginTransaction(out work));
        Console.WriteLine("received: " + Next(input, Mq.Receive, work));
        End(work, true);

        using (List got = new List().Room(Body, 100).Any(BodySize))
        using (ManualResetEvent called = new ManualResetEvent(false))
        {
            IntPtr memory = Marshal.AllocHGlobal(Marshal.SizeOf(typeof(Mq.Properties)));
            Marshal.StructureToPtr(got.Made(), memory, false);
            uint outcome = 0;
            Mq.Callback callback = (code, queue, timeout, action, properties, overlapped, cursor) =>
            {
                outcome = code;
                called.Set();
            };
            Mq.Check(Mq.MQReceiveLater(input, Mq.Infinite, Mq.Receive, memory, IntPtr.Zero, callback, IntPtr.Zero, IntPtr.Zero));
            called.WaitOne();
            GC.KeepAlive(callback);
            Mq.Check(outcome);
            Console.WriteLine("called back: " + Encoding.UTF8.GetString(got.Taken(0, 100)));
            Marshal.FreeHGlobal(memory);
        }

        using (List machine = new List().Any(PrivateQueues))
        {
            Mq.Check(Mq.MQMgmtGetInfo(null, "MACHINE", machine.Made()));
            for (int at = 0; at < machine[0].Count; at++)
            {
                IntPtr text = Marshal.ReadIntPtr(machine[0].Items, at * IntPtr.Size);
                if (Marshal.PtrToStringUni(text).EndsWith("orders-in-csharp"))
                    Console.WriteLine("a private queue: orders-in-csharp");
                Mq.MQFreeMemory(text);
            }
            Mq.MQFreeMemory(machine[0].Items);
        }

        IntPtr none;
        uint error = Mq.MQOpenQueue(@"DIRECT=OS:.\private$\no-such-queue", 1, 0, out none);
        Console.WriteLine("error: 0x" + error.ToString("X8"));
        Mq.Check(Mq.MQCloseQueue(output));
        Mq.Check(Mq.MQCloseQueue(input));
        Mq.Check(Mq.MQDeleteQueue(name));
    }
}
