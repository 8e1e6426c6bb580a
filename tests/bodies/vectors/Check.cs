// Reads what qmnode wrote, with the serializers of .NET, and prints the values: one line of JSON a body.
// A line of input has the format, what is in the body, the body and Extension, the last two in base64, with tabs between.
using System;
using System.Collections.Generic;
using System.IO;
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

public static class Check
{
    static readonly Dictionary<string, Type> Types = new Dictionary<string, Type> {
        { "string", typeof(string) }, { "boolean", typeof(bool) }, { "int", typeof(int) }, { "long", typeof(long) }, { "unsignedLong", typeof(ulong) },
        { "double", typeof(double) }, { "decimal", typeof(decimal) }, { "dateTime", typeof(DateTime) }, { "guid", typeof(Guid) }, { "base64Binary", typeof(byte[]) },
        { "ArrayOfInt", typeof(int[]) }, { "ArrayOfString", typeof(List<string>) }, { "ArrayOfDouble", typeof(List<double>) },
        { "Order", typeof(Order) }, { "Shipped", typeof(Shipped) }, { "Maybe", typeof(Maybe) } };

    public static void Main()
    {
        string line;
        while ((line = Console.ReadLine()) != null) {
            var parts = line.Split('\t');
            Console.WriteLine(Json.Text(Value(parts[0], parts[1], Convert.FromBase64String(parts[2]), Convert.FromBase64String(parts[3]))));
        }
    }

    static object Value(string format, string type, byte[] body, byte[] extension)
    {
        switch (format) {
            case "xml": return Xml(Types[type], body);
            case "wcf": return Wcf(body);
            case "nservicebus": return NServiceBus(extension);
            case "rebus": return Newtonsoft.Json.JsonConvert.DeserializeObject<Dictionary<string, string>>(Encoding.UTF8.GetString(extension));
        }
        throw new ArgumentException(format);
    }

    // As XmlMessageFormatter.Read has it.
    static object Xml(Type type, byte[] body)
    {
        var reader = new XmlTextReader(new MemoryStream(body)) { WhitespaceHandling = WhitespaceHandling.Significant, DtdProcessing = DtdProcessing.Prohibit };
        var serializer = new XmlSerializer(type);
        if (!serializer.CanDeserialize(reader)) return "cannot deserialize";
        var value = serializer.Deserialize(reader);
        var order = value as Order;
        if (order != null) {
            var lines = new List<object>();
            foreach (var one in order.Lines) lines.Add(new Map { { "Item", one.Item }, { "Count", one.Count } });
            return new Map { { "Id", order.Id }, { "Customer", order.Customer }, { "Total", order.Total }, { "Paid", order.Paid }, { "When", order.When },
                { "Note", order.Note }, { "Lines", lines }, { "Source", order.Source } };
        }
        var shipped = value as Shipped;
        if (shipped != null) return new Map { { "Number", shipped.Number }, { "Carrier", shipped.Carrier } };
        var maybe = value as Maybe;
        if (maybe != null) return new Map { { "Count", maybe.Count }, { "Text", maybe.Text } };
        return value;
    }

    // The envelope follows the preamble: version, mode, via, known encoding.
    static object Wcf(byte[] body)
    {
        var start = 6 + 1 + body[6] + 2;
        var encoder = new BinaryMessageEncodingBindingElement().CreateMessageEncoderFactory().Encoder;
        var message = encoder.ReadMessage(new MemoryStream(body, start, body.Length - start), 65536);
        return new Map { { "action", message.Headers.Action }, { "to", message.Headers.To.OriginalString },
            { "message_id", message.Headers.MessageId == null ? null : message.Headers.MessageId.ToString() },
            { "reply_to", message.Headers.ReplyTo == null ? null : message.Headers.ReplyTo.Uri.OriginalString },
            { "body", message.GetReaderAtBodyContents().ReadOuterXml() } };
    }

    // As NServiceBus.Transport.Msmq has it.
    static object NServiceBus(byte[] extension)
    {
        var headers = new Dictionary<string, string>();
        var reader = XmlReader.Create(new MemoryStream(extension), new XmlReaderSettings { CheckCharacters = false });
        foreach (var info in (List<HeaderInfo>)new XmlSerializer(typeof(List<HeaderInfo>)).Deserialize(reader))
            if (info.Key != null) headers[info.Key] = info.Value;
        return headers;
    }
}
