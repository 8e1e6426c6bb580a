// What programs of scenarios in C# share: each scenario is run, and its name and problem are printed.
using System;

static class Check
{
    static int failed;

    public static void Scenario(string name, Action run)
    {
        try
        {
            run();
            Console.WriteLine("ok " + name);
        }
        catch (Exception error)
        {
            failed++;
            Console.WriteLine("not ok " + name + ": " + error.GetType().Name + " " + error.Message.Replace('\n', ' ') + " "
                              + (error.StackTrace ?? "").Replace('\n', ' '));
        }
    }

    public static void That(bool holds, string what = "it does not hold")
    {
        if (!holds)
            throw new Exception(what);
    }

    public static void Equal<T>(T expected, T found)
    {
        if (!Equals(expected, found))
            throw new Exception("expected " + expected + ", found " + found);
    }

    public static int Failed { get { return failed; } }
}
