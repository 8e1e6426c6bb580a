// Texts of a .resx file as the resources of an assembly, which mono-mcs alone has no program for: Resources.exe FROM TO.
using System.Resources;
using System.Xml;

static class Resources
{
    static void Main(string[] words)
    {
        XmlDocument texts = new XmlDocument();
        texts.Load(words[0]);
        using (ResourceWriter writer = new ResourceWriter(words[1]))
            foreach (XmlElement text in texts.SelectNodes("/root/data"))
                writer.AddResource(text.GetAttribute("name"), text["value"].InnerText);
    }
}
