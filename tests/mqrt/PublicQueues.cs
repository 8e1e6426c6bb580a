// Searches of MSMQ.Messaging for public queues; the node's directory is that of test_searches.py.
using System;
using System.Collections.Generic;
using System.Linq;
using MSMQ.Messaging;

static class PublicQueues
{
    static string Names(IEnumerable<MessageQueue> found)
    {
        return string.Join(" ", found.Select(one => one.Path).OrderBy(path => path, StringComparer.Ordinal));
    }

    static IEnumerable<MessageQueue> Enumerated(MessageQueueCriteria criteria)
    {
        using (MessageQueueEnumerator found = MessageQueue.GetMessageQueueEnumerator(criteria))
            while (found.MoveNext())
                yield return found.Current;
    }

    static int Main()
    {
        Guid service = new Guid(Enumerable.Range(1, 16).Select(number => (byte)number).ToArray());
        Check.Scenario("all public queues are found", () =>
            Check.Equal(@"alpha\own beta\a beta\b beta\c", Names(MessageQueue.GetPublicQueues())));
        Check.Scenario("queues are found by label", () =>
            Check.Equal(@"beta\a beta\c", Names(MessageQueue.GetPublicQueuesByLabel("Orders"))));
        Check.Scenario("a label that no queue has finds none", () =>
            Check.Equal(0, MessageQueue.GetPublicQueuesByLabel("nothing").Length));
        Check.Scenario("queues are found by category", () =>
            Check.Equal(@"beta\b", Names(MessageQueue.GetPublicQueuesByCategory(service))));
        Check.Scenario("criteria go together", () => Check.Equal(@"beta\a beta\c", Names(MessageQueue.GetPublicQueues(
            new MessageQueueCriteria { Label = "Orders", Category = Guid.Empty }))));
        Check.Scenario("criteria name a machine", () => Check.Equal(@"beta\a beta\b beta\c", Names(Enumerated(
            new MessageQueueCriteria { MachineName = "BETA" }))));
        Check.Scenario("criteria have times", () =>
        {
            Check.Equal(4, Enumerated(new MessageQueueCriteria { CreatedBefore = DateTime.Now.AddDays(1) }).Count());
            Check.Equal(0, Enumerated(new MessageQueueCriteria { ModifiedAfter = DateTime.Now.AddDays(1) }).Count());
        });
        Check.Scenario("an enumerator begins again", () =>
        {
            using (MessageQueueEnumerator found = MessageQueue.GetMessageQueueEnumerator())
            {
                Check.That(found.MoveNext());
                string first = found.Current.Path;
                found.Reset();
                Check.That(found.MoveNext());
                Check.Equal(first, found.Current.Path);
            }
        });
        Check.Scenario("a queue that was found has an identifier and a format name", () =>
        {
            MessageQueue found = MessageQueue.GetPublicQueuesByLabel("Bills").Single();
            Check.That(found.Id != Guid.Empty);
            Check.Equal("PUBLIC=" + found.Id, found.FormatName);
            Check.Equal("Bills", found.Label);
            Check.Equal(2000L, found.MaximumQueueSize);
            Check.Equal("PUBLIC=" + found.Id, new MessageQueue(@"beta\b").FormatName);
            Check.That(MessageQueue.Exists(@"beta\b") && !MessageQueue.Exists(@"beta\none"));
            Check.Equal(3, MessageQueue.GetPublicQueuesByMachine("beta").Length);
        });
        return Check.Failed == 0 ? 0 : 1;
    }
}
