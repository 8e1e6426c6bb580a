// Vectors of XmlSerializer, BinaryFormatter, BinaryMessageEncoder and of the headers of NServiceBus and Rebus.
using System;
using System.Collections;
using System.Collections.Generic;
using System.IO;
using System.Runtime.Serialization.Formatters.Binary;
using System.ServiceModel.Channels;
using System.Text;
using System.Xml;
using System.Xml.Serialization;
using Map = System.Collections.Generic.Dictionary<string, object>;

public class Line { public string Item; public int Count; }
public class Order { public int Id; public string Customer; public decimal Total; public bool Paid; public DateTime When; public string Note; public List<Line> Lines = new List<Line>(); [XmlAttribute] public string Source; }
[XmlRoot(Namespace = "urn:shop")] public class Shipped { public string Number; [XmlElement(Namespace = "urn:other")] public string Carrier; }
public class Maybe { public int? Count; public string Text; }
public class HeaderInfo { public string Key; public string Value; }

public enum Colour { Red, Green }
[Serializable] public struct Point { public int X, Y; }
[Serializable] public class Node { public string Name; public Node Next; public Node(string name) { Name = name; } }
[Serializable] public class Person { public string Name { get; set; } public int Age { get; set; } public Colour Favourite = Colour.Green; public Point Place = new Point { X = 3, Y = -4 }; }
[Serializable] public class Customer : Person { public List<string> Tags = new List<string>(); public Person Manager; }

public static class Formatters
{
    public static void Main()
    {
        XmlVectors();
        BinaryVectors();
        WcfVectors();
        HeaderVectors();
    }

    static readonly object[] Simple = {
        "hello", "Gr\u00fc\u00dfe <&> \u65e5\u672c\u8a9e", "", true, false, 42, int.MinValue, (short)-7, 1L << 40, 0.1, double.PositiveInfinity, 1.5f, 12.50m,
        new DateTime(2026, 11, 22, 21, 30, 15, DateTimeKind.Utc), new DateTime(2026, 1, 2, 3, 4, 5), new Guid("00112233-4455-6677-8899-aabbccddeeff"), new byte[] { 0, 1, 254, 255 },
        (byte)200, 'x', new[] { 1, 2, 3 }, new List<string> { "a", "", "c" } };

    // XmlMessageFormatter: XmlSerializer.Serialize to a stream, and the body type 0.

    static void XmlVectors()
    {
        foreach (var value in Simple) Xml(value, value);
        Xml(new Order { Id = 7, Customer = "A & B", Total = 1234.50m, Paid = true, When = new DateTime(2026, 5, 6), Source = "web",
                Lines = { new Line { Item = "screw", Count = 100 }, new Line { Item = "nut", Count = 99 } } },
            new Map { { "Order", new Map { { "@Source", "web" }, { "Id", "7" }, { "Customer", "A & B" }, { "Total", "1234.50" }, { "Paid", "true" }, { "When", "2026-05-06T00:00:00" },
                { "Lines", new Map { { "Line", new object[] { Line("screw", "100"), Line("nut", "99") } } } } } } });
        Xml(new Order { Id = -1 }, new Map { { "Order", new Map { { "Id", "-1" }, { "Total", "0" }, { "Paid", "false" }, { "When", "0001-01-01T00:00:00" }, { "Lines", "" } } } });
        Xml(new Shipped { Number = "S1", Carrier = "Post" },
            new Map { { "Shipped", new Map { { "@xmlns", "urn:shop" }, { "Number", "S1" }, { "Carrier", new Map { { "@xmlns", "urn:other" }, { "#text", "Post" } } } } } });
        Xml(new Maybe { Text = "\u4e2d" }, new Map { { "Maybe", new Map { { "Count", null }, { "Text", "\u4e2d" } } } });
        Xml(new Maybe { Count = 5, Text = "" }, new Map { { "Maybe", new Map { { "Count", "5" }, { "Text", "" } } } });
    }

    static Map Line(string item, string count) { return new Map { { "Item", item }, { "Count", count } }; }

    static void Xml(object value, object expected)
    {
        var serializer = new XmlSerializer(value.GetType());
        var stream = new MemoryStream();
        serializer.Serialize(stream, value);
        Json.Line("xml", 0, stream.ToArray(), expected);
        foreach (var encoding in new Encoding[] { new UTF8Encoding(true), new UnicodeEncoding(false, true), new UnicodeEncoding(false, false), new UnicodeEncoding(true, true) }) {
            stream = new MemoryStream();
            using (var writer = new StreamWriter(stream, encoding)) serializer.Serialize(writer, value);
            Json.Line("xml", 0, stream.ToArray(), expected);
        }
    }

    // BinaryMessageFormatter: BinaryFormatter.Serialize to a stream, and the body type 768.

    static void BinaryVectors()
    {
        foreach (var value in Simple) Binary(value, value);
        Binary(uint.MaxValue); Binary(ulong.MaxValue); Binary((ushort)1); Binary((sbyte)-5); Binary(TimeSpan.FromHours(25.5)); Binary(-0.001m); Binary(decimal.MaxValue);
        Binary(new double[] { 1.5, -2.25 }); Binary(new bool[] { true, false, true }); Binary(new char[] { 'a', '\u00e9', '\u4e2d' }); Binary(new decimal[] { 1.10m, 2m });
        Binary(new DateTime[] { new DateTime(2026, 1, 1) }); Binary(new string[] { "a", null, null, "b" }); Binary(new object[] { 1, "two", null, 3.5, true });
        Binary(new int[2, 3] { { 1, 2, 3 }, { 4, 5, 6 } }, new object[] { new[] { 1, 2, 3 }, new[] { 4, 5, 6 } });
        Binary(new[] { new[] { 1 }, new int[0], new[] { 2, 3 } }); Binary(new object[300]);
        Binary(new List<int> { 1, 2, 3, 4, 5 }); Binary(new List<Guid> { new Guid("00112233-4455-6677-8899-aabbccddeeff") }); Binary(new List<string>());
        Binary(new ArrayList { 1, "x", null }); Binary(new Stack<int>(new[] { 1, 2 }), new[] { 1, 2 });
        var queue = new Queue<string>(new[] { "a", "b", "c" }); queue.Dequeue(); queue.Enqueue("d"); Binary(queue);
        Binary(new HashSet<int> { 5, 6 }); Binary(new LinkedList<string>(new[] { "p", "q" }));
        Binary(new Dictionary<string, int> { { "one", 1 }, { "two", 2 } }); Binary(new Dictionary<int, string> { { 1, "one" } }); Binary(new Dictionary<string, string>());
        Binary(new Hashtable { { "key", 1 } }); Binary(new SortedList { { "a", 1 }, { "b", 2 } }); Binary(new Dictionary<string, List<int>> { { "x", new List<int> { 1 } } });
        Binary(Colour.Green, new Map { { "$type", "Colour" }, { "value__", 1 } });
        Binary(new Point { X = 1, Y = 2 }, PointMap(1, 2));
        Binary(new Node("only"), NodeMap("only", null)); Binary(new Node("first") { Next = new Node("second") }, NodeMap("first", NodeMap("second", null)));
        var self = new Node("me"); self.Next = self; Binary(self, NodeMap("me", new Map { { "$cycle", "Node" } }));
        var shared = new Node("shared"); Binary(new[] { shared, shared, null }, new object[] { NodeMap("shared", null), NodeMap("shared", null), null });
        Binary(new Person { Name = "Ann", Age = 30 }, PersonMap("Person", "Ann", 30));
        var manager = new Person { Name = "Bob", Age = 50 };
        var customer = PersonMap("Customer", "Cy", 20); customer["Tags"] = new[] { "vip" }; customer["Manager"] = PersonMap("Person", "Bob", 50);
        Binary(new Customer { Name = "Cy", Age = 20, Manager = manager, Tags = { "vip" } }, customer);
    }

    static Map PointMap(int x, int y) { return new Map { { "$type", "Point" }, { "X", x }, { "Y", y } }; }
    static Map NodeMap(string name, object next) { return new Map { { "$type", "Node" }, { "Name", name }, { "Next", next } }; }
    static Map PersonMap(string type, string name, int age)
    {
        return new Map { { "$type", type }, { "Name", name }, { "Age", age }, { "Favourite", new Map { { "$type", "Colour" }, { "value__", 1 } } }, { "Place", PointMap(3, -4) } };
    }

    static void Binary(object value) { Binary(value, value); }

    static void Binary(object value, object expected)
    {
        var stream = new MemoryStream();
        new BinaryFormatter().Serialize(stream, value);
        Json.Line("binary", 768, stream.ToArray(), expected, null, false);
    }

    // netMsmqBinding: the preamble of MC-NMF, then what the encoders of WCF write.

    static void WcfVectors()
    {
        var bodies = new Dictionary<string, object> {
            { "<Create xmlns=\"http://tempuri.org/\"><name>TestMessage</name></Create>", Operation("Create", new Map { { "name", "TestMessage" } }) },
            { "<Ping xmlns=\"http://tempuri.org/\" />", Operation("Ping", new Map()) },
            { "<Add xmlns=\"http://tempuri.org/\"><a>1</a><b>22</b><c>true</c><d>-1.5</d></Add>", Operation("Add", new Map { { "a", "1" }, { "b", "22" }, { "c", "true" }, { "d", "-1.5" } }) },
            { "<Text xmlns=\"http://tempuri.org/\"><t>\u65e5\u672c &lt;&amp;&gt;</t></Text>", Operation("Text", new Map { { "t", "\u65e5\u672c <&>" } }) },
            { "<Many xmlns=\"http://tempuri.org/\"><i>1</i><i>2</i><i>3</i></Many>", Operation("Many", new Map { { "i", new[] { "1", "2", "3" } } }) },
            { "<Deep xmlns=\"http://tempuri.org/\"><a><b><c>x</c></b></a></Deep>", Operation("Deep", new Map { { "a", new Map { { "b", new Map { { "c", "x" } } } } } }) },
            { "<Plain><Header>x</Header></Plain>", new Map { { "Plain", new Map { { "Header", "x" } } } } },
            { "<Other xmlns=\"http://tempuri.org/\" kind=\"k\"><e xmlns=\"urn:e\">1</e></Other>",
              Operation("Other", new Map { { "@kind", "k" }, { "e", new Map { { "@xmlns", "urn:e" }, { "#text", "1" } } } }) },
            { "<Long xmlns=\"http://tempuri.org/\"><t>" + new string('y', 300) + "</t></Long>", Operation("Long", new Map { { "t", new string('y', 300) } }) },
        };
        foreach (var body in bodies) {
            Wcf(7, new BinaryMessageEncodingBindingElement(), MessageVersion.Soap12WSAddressing10, body.Key, body.Value);
            Wcf(3, new TextMessageEncodingBindingElement(MessageVersion.Soap12WSAddressing10, Encoding.UTF8), MessageVersion.Soap12WSAddressing10, body.Key, body.Value);
        }
        Typed();
    }

    static Map Operation(string name, Map parameters)
    {
        var held = new Map { { "@xmlns", "http://tempuri.org/" } };
        foreach (var parameter in parameters) held[parameter.Key] = parameter.Value;
        return new Map { { name, held } };
    }

    static void Wcf(byte encoding, MessageEncodingBindingElement binding, MessageVersion version, string xml, object expected)
    {
        var message = Message.CreateMessage(version, "http://tempuri.org/IShop/Do", XmlReader.Create(new StringReader(xml)));
        message.Headers.To = new Uri("net.msmq://localhost/private/shop");
        message.Headers.MessageId = new UniqueId("urn:uuid:00112233-4455-6677-8899-aabbccddeeff");
        var stream = new MemoryStream();
        binding.CreateMessageEncoderFactory().Encoder.WriteMessage(message, stream);
        Framed(encoding, stream.ToArray(), new Map { { "action", "http://tempuri.org/IShop/Do" }, { "to", "net.msmq://localhost/private/shop" },
            { "message_id", "urn:uuid:00112233-4455-6677-8899-aabbccddeeff" }, { "body", expected } });
    }

    // Values that the binary writer has records of their own for.
    static void Typed()
    {
        Record("Int32", writer => writer.WriteValue(123456), "123456"); Record("Int64", writer => writer.WriteValue(1L << 40), "1099511627776");
        Record("Boolean", writer => writer.WriteValue(true), "true"); Record("Double", writer => writer.WriteValue(2.5), "2.5");
        Record("Single", writer => writer.WriteValue(0.1f), "0.1"); Record("Decimal", writer => writer.WriteValue(-12.34m), "-12.34");
        Record("Date", writer => writer.WriteValue(new DateTime(2026, 1, 2, 3, 4, 5, DateTimeKind.Utc)), "2026-01-02T03:04:05Z");
        Record("Guid", writer => writer.WriteValue(new Guid("00112233-4455-6677-8899-aabbccddeeff")), "00112233-4455-6677-8899-aabbccddeeff");
        Record("Span", writer => writer.WriteValue(TimeSpan.FromMinutes(90)), "PT1H30M"); Record("Bytes", writer => writer.WriteBase64(new byte[] { 1, 2, 3, 4 }, 0, 4), "AQIDBA==");
        Record("Zero", writer => writer.WriteValue(0), "0"); Record("One", writer => writer.WriteValue(1), "1");
        Record("Id", writer => writer.WriteValue(new UniqueId("urn:uuid:00112233-4455-6677-8899-aabbccddeeff")), "urn:uuid:00112233-4455-6677-8899-aabbccddeeff");
    }

    class Writing : BodyWriter
    {
        readonly string name; readonly Action<XmlDictionaryWriter> write;
        public Writing(string name, Action<XmlDictionaryWriter> write) : base(true) { this.name = name; this.write = write; }
        protected override void OnWriteBodyContents(XmlDictionaryWriter writer) { writer.WriteStartElement(name, "urn:t"); write(writer); writer.WriteEndElement(); }
    }

    static void Record(string name, Action<XmlDictionaryWriter> write, string expected)
    {
        var message = Message.CreateMessage(MessageVersion.Soap12WSAddressing10, "urn:do", new Writing(name, write));
        var stream = new MemoryStream();
        new BinaryMessageEncodingBindingElement().CreateMessageEncoderFactory().Encoder.WriteMessage(message, stream);
        Framed(7, stream.ToArray(), new Map { { "action", "urn:do" }, { "body", new Map { { name, new Map { { "@xmlns", "urn:t" }, { "#text", expected } } } } } });
    }

    static void Framed(byte encoding, byte[] envelope, Map expected)
    {
        var via = Encoding.UTF8.GetBytes("net.msmq://localhost/private/shop");
        var body = new List<byte> { 0, 1, 0, 1, 4, 2, (byte)via.Length };
        body.AddRange(via); body.AddRange(new byte[] { 3, encoding }); body.AddRange(envelope);
        expected["via"] = "net.msmq://localhost/private/shop"; expected["mode"] = "singleton-sized";
        expected["encoding"] = encoding == 7 ? "application/soap+msbin1" : "application/soap+xml; charset=utf-8";
        Json.Line("wcf", 0, body.ToArray(), expected);
    }

    // Headers: the XML of a list of HeaderInfo, and Newtonsoft's JSON of a dictionary, both in Extension.

    static void HeaderVectors()
    {
        for (var count = 0; count < 16; count++) {
            var headers = new Dictionary<string, string>();
            for (var one = 0; one < count; one++) headers[Names[one]] = Values[(one * 7 + count) % Values.Length];
            var infos = new List<HeaderInfo>();
            foreach (var header in headers) infos.Add(new HeaderInfo { Key = header.Key, Value = header.Value });
            var stream = new MemoryStream();
            using (var writer = XmlWriter.Create(stream, new XmlWriterSettings { CheckCharacters = false, Encoding = new UTF8Encoding(false) }))
                new XmlSerializer(typeof(List<HeaderInfo>)).Serialize(writer, infos);
            if (count % 4 == 3) stream.Write(new byte[count], 0, count);  // NUL characters, as old versions left them
            Json.Line("nservicebus", 0, new byte[0], ReadBack(stream.ToArray()), stream.ToArray());
            Json.Line("rebus", 0, new byte[0], headers, Encoding.UTF8.GetBytes(Newtonsoft.Json.JsonConvert.SerializeObject(headers)));
        }
    }

    // XML's ends of lines are single characters: this is what NServiceBus reads.
    static Dictionary<string, string> ReadBack(byte[] extension)
    {
        var text = Encoding.UTF8.GetString(extension).TrimEnd('\0');
        var reader = XmlReader.Create(new StringReader(text), new XmlReaderSettings { CheckCharacters = false });
        var headers = new Dictionary<string, string>();
        foreach (var info in (List<HeaderInfo>)new XmlSerializer(typeof(List<HeaderInfo>)).Deserialize(reader)) headers[info.Key] = info.Value;
        return headers;
    }

    static readonly string[] Names = {
        "NServiceBus.MessageId", "NServiceBus.EnclosedMessageTypes", "NServiceBus.ContentType", "NServiceBus.TimeSent", "NServiceBus.ExceptionInfo.ExceptionType",
        "NServiceBus.ExceptionInfo.Message", "NServiceBus.ExceptionInfo.StackTrace", "NServiceBus.FailedQ", "rbs2-msg-id", "rbs2-msg-type", "rbs2-content-type", "rbs2-error-details",
        "rbs2-source-queue", "CorrId", "\u00fcber", "empty" };
    static readonly string[] Values = {
        "5f1c0f5e-0d0c-4a55-9f0a-b0e600f00d00", "Shop.OrderPlaced, Shop, Version=1.0.0.0", "application/json;charset=utf-8", "2026-11-22 21:00:00:000000 Z",
        "System.InvalidOperationException: no stock\r\n   at Shop.Handler.Handle() in C:\\src\\Handler.cs:line 7", "", "a <b> & \"c\" 'd'", "\u65e5\u672c\u8a9e", "shop@HOST", "a\u0001b" };
}
