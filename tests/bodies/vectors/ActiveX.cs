// Vectors of ActiveXMessageFormatter. Needs Microsoft's System.Messaging, of the .NET Framework: mono's has no such formatter.
using System;
using System.Collections.Generic;
using System.IO;
using System.Messaging;
using System.Reflection;
using System.Text;

public static class ActiveX
{
    const int Body = 9, BodySize = 10;
    static readonly ActiveXMessageFormatter Formatter = new ActiveXMessageFormatter();

    public static void Main()
    {
        foreach (var value in Scalars()) Write(value);
        foreach (var text in Texts) { Write(text); Read("VT_BSTR", 8, Encoding.Unicode.GetBytes(text)); }
        foreach (var text in Texts) if (Ascii(text)) Read("VT_LPSTR", 30, Encoding.ASCII.GetBytes(text));
        for (var one = 0; one < 128; one += 8) Read("VT_I1", 16, new[] { (byte)one });
        for (var one = 0; one < 16; one++) Read("VT_BOOL", 11, new[] { (byte)(one * 17) });
        for (var one = 0; one < 16; one++) Read("VT_CLSID", 72, Bytes(16, one * 31));
        for (var one = 0; one < 16; one++) Write(Bytes(one * one * 5, one));
        Write(null);
    }

    static readonly string[] Texts = {
        "", "a", "hello", "order 7", "Gr\u00fc\u00dfe", "\u65e5\u672c\u8a9e", "\ud83d\ude00 smile", "line\r\nline", "tab\there", "nul\0inside",
        "<?xml version=\"1.0\"?><a/>", "{\"json\": true}", "trailing ", " leading", "quote \" and \\", "42", "true", "\u0639\u0631\u0628\u064a",
        "~!@#$%^&*()", "0123456789", "the quick brown fox", new string('x', 1000) };

    static IEnumerable<object> Scalars()
    {
        for (var bit = 0; bit < 16; bit++) {
            yield return (byte)(bit * 17);
            yield return (short)(bit % 2 == 0 ? short.MinValue + bit : short.MaxValue - bit * 1000);
            yield return (ushort)(65535 - bit * 4321);
            yield return bit % 2 == 0 ? int.MinValue + bit : int.MaxValue - bit * 100000000;
            yield return uint.MaxValue - (uint)bit * 200000000u;
            yield return bit % 2 == 0 ? long.MinValue + bit : long.MaxValue - bit * 500000000000000000L;
            yield return ulong.MaxValue - (ulong)bit * 1000000000000000000UL;
            yield return (float)Math.Pow(-1.7, bit * 5);
            yield return Math.Pow(-2.3, bit * 21 - 150);
            yield return (bit % 2 == 0 ? 1m : -1m) * bit * bit * 1234567.8915m;
            yield return new DateTime(1 + bit * 600, 1 + bit % 12, 1 + bit, bit, bit * 3, bit * 2).AddTicks(bit * 654321L * 10);
        }
        foreach (var value in new object[] {
            true, false, float.NaN, float.PositiveInfinity, float.MaxValue, double.NaN, double.NegativeInfinity, double.Epsilon, double.MaxValue, 0.1, 0.1f,
            922337203685477.5807m, -922337203685477.5808m, 0.0001m, DateTime.MinValue, DateTime.MaxValue, new DateTime(2026, 11, 22, 21, 0, 0, DateTimeKind.Utc),
            new DateTime(1899, 12, 30), 'c' }) yield return value;
    }

    static bool Ascii(string text) { foreach (var letter in text) if (letter > 127) return false; return true; }

    static byte[] Bytes(int count, int seed) { var bytes = new byte[count]; new Random(seed).NextBytes(bytes); return bytes; }

    static void Write(object value)
    {
        var message = new Message();
        Formatter.Write(message, value);
        byte[] bytes;
        var stream = message.BodyStream;  // the type of a text can be read after its stream
        if (value is string || value is byte[]) {
            bytes = (byte[])Call(message, "GetUI1Vector", Body);
            Array.Resize(ref bytes, (int)Call(message, "GetUI4", BodySize));
        } else bytes = ((MemoryStream)stream).ToArray();
        var expected = value is char ? (int)(char)value : value is decimal ? Money((decimal)value)
            : value is DateTime ? DateTime.SpecifyKind((DateTime)value, DateTimeKind.Unspecified) : value;
        // Python has no tenths of a microsecond: a date that has them is not written again byte for byte.
        Json.Line(Name(message.BodyType), message.BodyType, bytes, expected, null, !(value is DateTime) || ((DateTime)value).Ticks % 10 == 0);
    }

    // As Decimal.ToOACurrency rounds.
    static object Money(decimal value) { return decimal.FromOACurrency(decimal.ToOACurrency(value)).ToString("0.####"); }

    // What COM programs write, as the formatter reads it.
    static void Read(string name, int type, byte[] body)
    {
        var message = new Message { BodyStream = new MemoryStream(body), BodyType = type };
        Call(message, "SetUI1Vector", Body, body);
        Call(message, "SetUI4", BodySize, body.Length);
        Json.Line(name, type, body, Formatter.Read(message), null, false);
    }

    static object Call(Message message, string method, params object[] arguments)
    {
        var flags = BindingFlags.Instance | BindingFlags.NonPublic | BindingFlags.Public;
        var properties = typeof(Message).GetField("properties", flags).GetValue(message);
        return properties.GetType().GetMethod(method, flags).Invoke(properties, arguments);
    }

    static string Name(int type)
    {
        if (type == 0x1011) return "VT_VECTOR|VT_UI1";
        return new Dictionary<int, string> {
            { 1, "VT_NULL" }, { 2, "VT_I2" }, { 3, "VT_I4" }, { 4, "VT_R4" }, { 5, "VT_R8" }, { 6, "VT_CY" }, { 7, "VT_DATE" }, { 11, "VT_BOOL" },
            { 17, "VT_UI1" }, { 18, "VT_UI2" }, { 19, "VT_UI4" }, { 20, "VT_I8" }, { 21, "VT_UI8" }, { 31, "VT_LPWSTR" } }[type];
    }
}
