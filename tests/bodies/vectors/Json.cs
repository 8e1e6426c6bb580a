// One line of JSON a vector: what went in, and the bytes that came out.
using System;
using System.Collections;
using System.Collections.Generic;
using System.Globalization;
using System.Text;
using System.Xml;

public static class Json
{
    static readonly CultureInfo Invariant = CultureInfo.InvariantCulture;

    public static void Line(string format, int bodyType, byte[] body, object value, byte[] extension = null, bool written = true)
    {
        var line = new Dictionary<string, object> {
            { "format", format }, { "body_type", bodyType }, { "body", body }, { "value", value }, { "written", written } };
        if (extension != null) line["extension"] = extension;
        Console.WriteLine(Text(line));
    }

    public static string Text(object value)
    {
        if (value == null || value is DBNull) return "null";
        if (value is string) return Quoted((string)value);
        if (value is char) return Quoted(value.ToString());
        if (value is bool) return (bool)value ? "true" : "false";
        if (value is double) return Number((double)value, ((double)value).ToString("R", Invariant));
        if (value is float) return Number((float)value, ((double)(float)value).ToString("R", Invariant));
        if (value is decimal) return Quoted(((decimal)value).ToString(Invariant));
        if (value is DateTime) return Quoted(Date((DateTime)value));
        if (value is TimeSpan) return Quoted(XmlConvert.ToString((TimeSpan)value));
        if (value is Guid || value is Uri) return Quoted(value.ToString());
        if (value is byte[]) return Quoted(Convert.ToBase64String((byte[])value));
        if (value is Enum) return Convert.ToInt64(value).ToString(Invariant);
        if (value is IDictionary) {
            var parts = new List<string>();
            foreach (DictionaryEntry entry in (IDictionary)value)
                parts.Add(Quoted(Convert.ToString(entry.Key, Invariant)) + ":" + Text(entry.Value));
            return "{" + string.Join(",", parts) + "}";
        }
        if (value is IEnumerable) {
            var parts = new List<string>();
            foreach (var one in (IEnumerable)value) parts.Add(Text(one));
            return "[" + string.Join(",", parts) + "]";
        }
        return Convert.ToString(value, Invariant);
    }

    // As Python's isoformat has it: microseconds, if there are any.
    public static string Date(DateTime date)
    {
        var micros = date.Ticks / 10 % 1000000;
        return date.ToString("yyyy-MM-ddTHH:mm:ss", Invariant) + (micros == 0 ? "" : "." + micros.ToString("000000"))
            + (date.Kind == DateTimeKind.Utc ? "+00:00" : "");
    }

    static string Number(double value, string text)
    {
        if (double.IsNaN(value)) return "\"NaN\"";
        if (double.IsInfinity(value)) return value > 0 ? "\"INF\"" : "\"-INF\"";
        return text;
    }

    static string Quoted(string text)
    {
        var quoted = new StringBuilder("\"");
        foreach (var letter in text)
            if (letter == '"' || letter == '\\') quoted.Append('\\').Append(letter);
            else if (letter < ' ' || letter > '~') quoted.Append("\\u").Append(((int)letter).ToString("x4"));
            else quoted.Append(letter);
        return quoted.Append('"').ToString();
    }
}
