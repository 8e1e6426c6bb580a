// Scenarios for MSMQ.Messaging, as its users write them. It is compiled with that library, which is not part of this project.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Threading;
using MSMQ.Messaging;

public class Order
{
    public int Id;
    public string Customer;
    public decimal Total;
    public List<string> Lines = new List<string>();
}

[Serializable]
public class Parcel
{
    public string To;
    public double Weight;
}

static class Messaging
{
    static int number;
    static readonly TimeSpan Soon = TimeSpan.FromSeconds(20), Now = TimeSpan.Zero;

    static MessageQueue Made(bool transactional = false)
    {
        return MessageQueue.Create(@".\private$\managed-" + ++number, transactional);
    }

    static void With(string name, Action<MessageQueue> run, bool transactional = false)
    {
        Check.Scenario(name, () =>
        {
            MessageQueue queue = Made(transactional);
            try
            {
                queue.MessageReadPropertyFilter.SetAll();
                run(queue);
            }
            finally
            {
                string path = queue.Path;
                queue.Close();
                MessageQueue.Delete(path);
            }
        });
    }

    static void Fails(MessageQueueErrorCode code, Action run)
    {
        try
        {
            run();
        }
        catch (MessageQueueException error)
        {
            Check.Equal(code, error.MessageQueueErrorCode);
            Check.That(error.Message.Length > 0, "an error without words");
            return;
        }
        throw new Exception("it did not fail with " + code);
    }

    // A message with one property set is received with it.
    static void Comes<T>(string name, Action<Message> set, Func<Message, T> get, T expected)
    {
        With("a message comes with " + name, queue =>
        {
            Message sent = new Message("body");
            set(sent);
            queue.Send(sent);
            Check.Equal(expected, get(queue.Receive(Soon)));
        });
    }

    static void Formatted(string name, Func<IMessageFormatter> formatter, params object[] values)
    {
        foreach (object value in values)
            With(name + " carries " + (value is Array ? value.GetType().Name : value.GetType().Name + " " + value), queue =>
            {
                queue.Formatter = formatter();
                queue.Send(value);
                object found = queue.Receive(Soon).Body;
                if (value is Array)
                    Check.That(((Array)value).Cast<object>().SequenceEqual(((Array)found).Cast<object>()));
                else
                    Check.Equal(value, found);
            });
    }

    static void Properties()
    {
        Comes("its label", m => m.Label = "a label", m => m.Label, "a label");
        Comes("an empty label", m => m.Label = "", m => m.Label, "");
        Comes("a label of all letters", m => m.Label = "Gr\u00fc\u00dfe \u65e5\u672c", m => m.Label, "Gr\u00fc\u00dfe \u65e5\u672c");
        Comes("the longest label", m => m.Label = new string('x', 249), m => m.Label.Length, 249);
        Comes("its priority", m => m.Priority = MessagePriority.VeryHigh, m => m.Priority, MessagePriority.VeryHigh);
        Comes("the lowest priority", m => m.Priority = MessagePriority.Lowest, m => m.Priority, MessagePriority.Lowest);
        Comes("recoverable delivery", m => m.Recoverable = true, m => m.Recoverable, true);
        Comes("express delivery", m => m.Recoverable = false, m => m.Recoverable, false);
        Comes("what is specific to applications", m => m.AppSpecific = 4711, m => m.AppSpecific, 4711);
        Comes("a correlation", m => m.CorrelationId = "01234567-89ab-cdef-0123-456789abcdef\\77", m => m.CorrelationId,
              "01234567-89ab-cdef-0123-456789abcdef\\77");
        Comes("an extension", m => m.Extension = new byte[] { 1, 0, 2 }, m => Convert.ToBase64String(m.Extension), "AQAC");
        Comes("a time to be received", m => m.TimeToBeReceived = TimeSpan.FromSeconds(500),
              m => m.TimeToBeReceived.TotalSeconds > 400, true);
        Comes("a time to reach the queue", m => m.TimeToReachQueue = TimeSpan.FromSeconds(600),
              m => m.TimeToReachQueue.TotalSeconds > 400, true);
        Comes("journaling at its source", m => m.UseJournalQueue = true, m => m.UseJournalQueue, true);
        Comes("a dead-letter queue", m => m.UseDeadLetterQueue = true, m => m.UseDeadLetterQueue, true);
        Comes("tracing", m => m.UseTracing = true, m => m.UseTracing, true);
        Comes("acknowledgments", m =>
        {
            m.AcknowledgeType = AcknowledgeTypes.FullReceive;
            m.AdministrationQueue = new MessageQueue(@"FormatName:DIRECT=OS:.\private$\nowhere");
        }, m => m.AcknowledgeType, AcknowledgeTypes.FullReceive);
        Comes("a response queue", m => m.ResponseQueue = new MessageQueue(@"FormatName:DIRECT=OS:ALPHA\private$\back"),
              m => m.ResponseQueue.FormatName, @"DIRECT=OS:ALPHA\private$\back");
        Comes("a time of sending", m => { }, m => Math.Abs((DateTime.Now - m.SentTime).TotalHours) < 1, true);
        Comes("a time of arrival", m => { }, m => Math.Abs((DateTime.Now - m.ArrivedTime).TotalHours) < 1, true);
        Comes("a class", m => { }, m => m.MessageType, MessageType.Normal);
        Comes("an identifier", m => { }, m => m.Id.Contains("\\"), true);
        Comes("a lookup identifier", m => { }, m => m.LookupId != 0, true);
        Comes("no authentication", m => { }, m => m.Authenticated, false);
        Comes("its destination", m => { }, m => m.DestinationQueue.QueueName.Contains("managed-"), true);
        With("a message comes with a stream", queue =>
        {
            queue.Send(new Message { BodyStream = new MemoryStream(Encoding.ASCII.GetBytes("raw")), BodyType = 99 });
            Message found = queue.Receive(Soon);
            Check.Equal("raw", new StreamReader(found.BodyStream).ReadToEnd());
            Check.Equal(99, found.BodyType);
        });
        With("a message comes with a body of a megabyte", queue =>
        {
            queue.Send(new Message { BodyStream = new MemoryStream(new byte[1 << 20]) });
            Check.Equal(1L << 20, queue.Receive(Soon).BodyStream.Length);
        });
    }

    static void Formatters()
    {
        Formatted("XML", () => new XmlMessageFormatter(new[] { typeof(string) }), "hello", "", "<&>", "Gr\u00fc\u00dfe \u65e5\u672c");
        Formatted("XML", () => new XmlMessageFormatter(new[] { typeof(int) }), 42, int.MinValue);
        Formatted("XML", () => new XmlMessageFormatter(new[] { typeof(Guid), typeof(decimal), typeof(bool) }), Guid.Empty, 12.5m, true);
        Formatted("XML", () => new XmlMessageFormatter(new[] { typeof(int[]) }), new[] { 1, 2, 3 });
        Formatted("binary", () => new BinaryMessageFormatter(), "hello", 42, 1.5, true, 'x', 12.5m, new DateTime(2026, 1, 2), Guid.Empty,
                  new byte[] { 0, 255 }, new[] { "a", "b" });
        Formatted("ActiveX", () => new ActiveXMessageFormatter(), "hello", "", 42, (short)-7, 1.5, 1.5f, true, (byte)200,
                  new byte[] { 0, 1, 255 });
        With("XML carries an order", queue =>
        {
            queue.Formatter = new XmlMessageFormatter(new[] { typeof(Order) });
            queue.Send(new Order { Id = 7, Customer = "A & B", Total = 1.50m, Lines = { "screws", "nuts" } });
            Order found = (Order)queue.Receive(Soon).Body;
            Check.That(found.Id == 7 && found.Customer == "A & B" && found.Total == 1.50m && found.Lines.Count == 2);
        });
        With("binary carries a parcel", queue =>
        {
            queue.Formatter = new BinaryMessageFormatter();
            queue.Send(new Parcel { To = "here", Weight = 2.5 });
            Parcel found = (Parcel)queue.Receive(Soon).Body;
            Check.That(found.To == "here" && found.Weight == 2.5);
        });
    }

    static void Reading()
    {
        With("what is sent first is received first", queue =>
        {
            for (int at = 0; at < 5; at++) queue.Send(at, "number " + at);
            for (int at = 0; at < 5; at++) Check.Equal("number " + at, queue.Receive(Soon).Label);
        });
        With("a higher priority comes first", queue =>
        {
            queue.Send(new Message("low") { Priority = MessagePriority.Low, Label = "low" });
            queue.Send(new Message("high") { Priority = MessagePriority.High, Label = "high" });
            Check.Equal("high", queue.Receive(Soon).Label);
        });
        With("a peek leaves the message", queue =>
        {
            queue.Send("x", "stays");
            Check.Equal("stays", queue.Peek(Soon).Label);
            Check.Equal("stays", queue.Receive(Soon).Label);
        });
        With("an empty queue times out", queue => Fails(MessageQueueErrorCode.IOTimeout, () => queue.Receive(Now)));
        With("a peek of an empty queue times out", queue => Fails(MessageQueueErrorCode.IOTimeout, () => queue.Peek(Now)));
        With("a short wait times out", queue => Fails(MessageQueueErrorCode.IOTimeout, () => queue.Receive(TimeSpan.FromMilliseconds(50))));
        With("a receive by identifier takes that message", queue =>
        {
            Message second = new Message("b") { Label = "second" };
            queue.Send("a", "first");
            queue.Send(second);
            Check.Equal("second", queue.ReceiveById(second.Id).Label);
            Check.Equal("first", queue.Receive(Soon).Label);
        });
        With("a peek by identifier leaves it", queue =>
        {
            Message sent = new Message("b");
            queue.Send(sent);
            Check.Equal(sent.Id, queue.PeekById(sent.Id).Id);
            Check.Equal(1, queue.GetAllMessages().Length);
        });
        With("an identifier of nothing is said", queue =>
        {
            try { queue.ReceiveById("01234567-89ab-cdef-0123-456789abcdef\\1"); }
            catch (InvalidOperationException) { return; }
            throw new Exception("it was found");
        });
        With("an answer is found by its correlation", queue =>
        {
            string id = "01234567-89ab-cdef-0123-456789abcdef\\9";
            queue.Send(new Message("a"));
            queue.Send(new Message("b") { CorrelationId = id, Label = "answer" });
            Check.Equal("answer", queue.PeekByCorrelationId(id).Label);
            Check.Equal("answer", queue.ReceiveByCorrelationId(id).Label);
        });
        With("a message is read by its lookup identifier", queue =>
        {
            queue.Send("a", "first");
            queue.Send("b", "second");
            long lookup = queue.GetAllMessages()[1].LookupId;
            Check.Equal("second", queue.PeekByLookupId(lookup).Label);
            Check.Equal("first", queue.PeekByLookupId(MessageLookupAction.Previous, lookup).Label);
            Check.Equal("first", queue.PeekByLookupId(MessageLookupAction.First, 0).Label);
            Check.Equal("second", queue.ReceiveByLookupId(lookup).Label);
        });
        With("all messages are listed", queue =>
        {
            for (int at = 0; at < 7; at++) queue.Send(at);
            Check.Equal(7, queue.GetAllMessages().Length);
        });
        With("an enumerator walks and takes", queue =>
        {
            for (int at = 0; at < 3; at++) queue.Send(at, at.ToString());
            MessageEnumerator walk = queue.GetMessageEnumerator2();
            List<string> seen = new List<string>();
            while (walk.MoveNext())
                seen.Add(walk.Current.Label);
            Check.Equal("0,1,2", string.Join(",", seen));
            walk.Reset();
            walk.MoveNext();
            walk.MoveNext();
            Check.Equal("1", walk.RemoveCurrent().Label);
            walk.Close();
            Check.Equal(2, queue.GetAllMessages().Length);
        });
        With("a cursor peeks on", queue =>
        {
            queue.Send("a", "first");
            queue.Send("b", "second");
            Cursor cursor = queue.CreateCursor();
            Check.Equal("first", queue.Peek(Soon, cursor, PeekAction.Current).Label);
            Check.Equal("second", queue.Peek(Soon, cursor, PeekAction.Next).Label);
            Check.Equal("second", queue.Receive(Soon, cursor).Label);
            cursor.Close();
        });
        With("a purge empties the queue", queue =>
        {
            queue.Send("a");
            queue.Purge();
            Check.Equal(0, queue.GetAllMessages().Length);
        });
        With("a filter leaves properties out", queue =>
        {
            queue.Send("a", "label");
            queue.MessageReadPropertyFilter.ClearAll();
            queue.MessageReadPropertyFilter.Label = true;
            Message found = queue.Receive(Soon);
            Check.Equal("label", found.Label);
            try { object body = found.Priority; }
            catch (InvalidOperationException) { return; }
            throw new Exception("a property came that was not asked for");
        });
        With("a handle that denies sharing keeps others out", queue =>
        {
            MessageQueue alone = new MessageQueue(queue.Path, true), other = new MessageQueue(queue.Path);
            Fails(MessageQueueErrorCode.IOTimeout, () => alone.Receive(Now));
            Fails(MessageQueueErrorCode.SharingViolation, () => other.Receive(Now));
            alone.Close();
        });
    }

    static void Later()
    {
        With("a receive ends later", queue =>
        {
            IAsyncResult begun = queue.BeginReceive(Soon);
            queue.Send("x", "late");
            Check.That(begun.AsyncWaitHandle.WaitOne(20000), "it did not end");
            Check.Equal("late", queue.EndReceive(begun).Label);
        });
        With("a receive calls back", queue =>
        {
            ManualResetEvent called = new ManualResetEvent(false);
            string label = null;
            queue.BeginReceive(Soon, "state", result =>
            {
                label = queue.EndReceive(result).Label + " " + result.AsyncState;
                called.Set();
            });
            queue.Send("x", "late");
            Check.That(called.WaitOne(20000), "it was not called");
            Check.Equal("late state", label);
        });
        With("a peek ends later", queue =>
        {
            IAsyncResult begun = queue.BeginPeek(Soon);
            queue.Send("x", "late");
            Check.Equal("late", queue.EndPeek(begun).Label);
            Check.Equal(1, queue.GetAllMessages().Length);
        });
        With("an event tells of a message", queue =>
        {
            ManualResetEvent raised = new ManualResetEvent(false);
            queue.ReceiveCompleted += (sender, told) => { Check.Equal("late", told.Message.Label); raised.Set(); };
            queue.BeginReceive(Soon);
            queue.Send("x", "late");
            Check.That(raised.WaitOne(20000), "it was not raised");
        });
        With("a receive that waits in vain says so", queue =>
        {
            IAsyncResult begun = queue.BeginReceive(TimeSpan.FromMilliseconds(50));
            Fails(MessageQueueErrorCode.IOTimeout, () => queue.EndReceive(begun));
        });
        With("twenty receives wait at a time", queue =>
        {
            List<IAsyncResult> begun = Enumerable.Range(0, 20).Select(_ => queue.BeginReceive(Soon)).ToList();
            for (int at = 0; at < 20; at++) queue.Send(at, at.ToString());
            Check.Equal(20, begun.Select(one => queue.EndReceive(one).Label).Distinct().Count());
        });
        With("a large message comes to a waiting receive", queue =>
        {
            IAsyncResult begun = queue.BeginReceive(Soon);
            queue.Send(new Message { BodyStream = new MemoryStream(new byte[100000]) });
            Check.Equal(100000L, queue.EndReceive(begun).BodyStream.Length);
        });
    }

    static void Transactions()
    {
        With("a commit sends", queue =>
        {
            using (MessageQueueTransaction work = new MessageQueueTransaction())
            {
                work.Begin();
                queue.Send("a", "first", work);
                queue.Send("b", "second", work);
                Fails(MessageQueueErrorCode.IOTimeout, () => queue.Peek(Now));
                work.Commit();
                Check.Equal(MessageQueueTransactionStatus.Committed, work.Status);
            }
            Check.Equal("first", queue.Receive(Soon).Label);
        }, true);
        With("an abort sends nothing", queue =>
        {
            MessageQueueTransaction work = new MessageQueueTransaction();
            work.Begin();
            queue.Send("a", work);
            work.Abort();
            Check.Equal(MessageQueueTransactionStatus.Aborted, work.Status);
            Fails(MessageQueueErrorCode.IOTimeout, () => queue.Peek(Now));
        }, true);
        With("an aborted receive gives the message back", queue =>
        {
            queue.Send("a", "stays", MessageQueueTransactionType.Single);
            MessageQueueTransaction work = new MessageQueueTransaction();
            work.Begin();
            Check.Equal("stays", queue.Receive(Soon, work).Label);
            work.Abort();
            Check.Equal("stays", queue.Receive(Soon, MessageQueueTransactionType.Single).Label);
        }, true);
        With("a committed receive takes it", queue =>
        {
            queue.Send("a", MessageQueueTransactionType.Single);
            MessageQueueTransaction work = new MessageQueueTransaction();
            work.Begin();
            queue.Receive(Soon, work);
            work.Commit();
            Fails(MessageQueueErrorCode.IOTimeout, () => queue.Peek(Now));
        }, true);
        With("a transaction that is left is aborted", queue =>
        {
            using (MessageQueueTransaction work = new MessageQueueTransaction())
            {
                work.Begin();
                queue.Send("a", work);
            }
            Fails(MessageQueueErrorCode.IOTimeout, () => queue.Peek(Now));
        }, true);
        With("a transaction moves a message", from =>
        {
            MessageQueue to = Made(true);
            from.Send("a", "moved", MessageQueueTransactionType.Single);
            using (MessageQueueTransaction work = new MessageQueueTransaction())
            {
                work.Begin();
                Message found = from.Receive(Soon, work);
                to.Send(found, work);
                work.Commit();
            }
            Check.Equal("moved", to.Receive(Soon).Label);
            MessageQueue.Delete(to.Path);
        }, true);
        With("messages say where they are in their transaction", queue =>
        {
            MessageQueueTransaction work = new MessageQueueTransaction();
            work.Begin();
            queue.Send("a", work);
            queue.Send("b", work);
            work.Commit();
            Message first = queue.Receive(Soon), last = queue.Receive(Soon);
            Check.That(first.IsFirstInTransaction && !first.IsLastInTransaction && last.IsLastInTransaction);
            Check.Equal(first.TransactionId, last.TransactionId);
        }, true);
        With("a plain queue takes no transaction", queue =>
        {
            MessageQueueTransaction work = new MessageQueueTransaction();
            work.Begin();
            Fails(MessageQueueErrorCode.TransactionUsage, () => queue.Send("a", work));
            work.Abort();
        });
    }

    static void Queues()
    {
        With("a queue exists", queue => Check.That(MessageQueue.Exists(queue.Path)));
        Check.Scenario("a queue that was not made does not exist", () => Check.That(!MessageQueue.Exists(@".\private$\not-there")));
        With("a queue is made once", queue => Fails(MessageQueueErrorCode.QueueExists, () => MessageQueue.Create(queue.Path)));
        Check.Scenario("a queue that is not there is not opened",
                       () => Fails(MessageQueueErrorCode.QueueNotFound, () => new MessageQueue(@".\private$\not-there").Receive(Now)));
        Check.Scenario("a queue that is not there is not deleted",
                       () => Fails(MessageQueueErrorCode.QueueNotFound, () => MessageQueue.Delete(@".\private$\not-there")));
        With("a queue says that it is transactional", queue => Check.That(queue.Transactional), true);
        With("a queue says that it is not", queue => Check.That(!queue.Transactional));
        With("a label is kept", queue => { queue.Label = "new"; Check.Equal("new", new MessageQueue(queue.Path).Label); });
        With("journaling is kept", queue => { queue.UseJournalQueue = true; Check.That(new MessageQueue(queue.Path).UseJournalQueue); });
        With("a quota is kept", queue => { queue.MaximumQueueSize = 500; Check.Equal(500L, new MessageQueue(queue.Path).MaximumQueueSize); });
        With("a quota of the journal is kept", queue => { queue.MaximumJournalSize = 50; Check.Equal(50L, new MessageQueue(queue.Path).MaximumJournalSize); });
        With("authentication is kept", queue => { queue.Authenticate = true; Check.That(new MessageQueue(queue.Path).Authenticate); });
        With("privacy is kept", queue =>
        {
            queue.EncryptionRequired = EncryptionRequired.Body;
            Check.Equal(EncryptionRequired.Body, new MessageQueue(queue.Path).EncryptionRequired);
        });
        With("a category is kept", queue =>
        {
            Guid category = Guid.NewGuid();
            queue.Category = category;
            Check.Equal(category, new MessageQueue(queue.Path).Category);
        });
        With("a queue says when it was made", queue => Check.That(Math.Abs((DateTime.Now - queue.CreateTime).TotalHours) < 1));
        With("a queue says when it was changed", queue => Check.That(Math.Abs((DateTime.Now - queue.LastModifyTime).TotalHours) < 1));
        With("a queue has a format name", queue => Check.That(queue.FormatName.StartsWith("PRIVATE=") || queue.FormatName.StartsWith("DIRECT=")));
        With("a format name opens a queue", queue =>
        {
            queue.Send("a", "by name");
            Check.Equal("by name", new MessageQueue("FormatName:" + queue.FormatName).Receive(Soon).Label);
        });
        With("private queues are listed", queue => Check.That(
            MessageQueue.GetPrivateQueuesByMachine(".").Any(one => one.QueueName.EndsWith(queue.QueueName.Split('\\').Last()))));
        With("a journal keeps what was received", queue =>
        {
            queue.UseJournalQueue = true;
            queue.Send("a", "kept");
            queue.Receive(Soon);
            MessageQueue journal = new MessageQueue(queue.Path + @"\Journal$");
            Check.Equal("kept", journal.Receive(Soon).Label);
        });
        With("a queue can be read and written", queue => Check.That(queue.CanRead && queue.CanWrite));
        With("rights are set on Windows alone", queue =>
        {
            try { queue.SetPermissions("Everyone", MessageQueueAccessRights.FullControl); }
            catch (PlatformNotSupportedException) { return; }
            throw new Exception("rights were set");
        });
        Check.Scenario("public queues need a directory", () =>
        {
            try { MessageQueue.GetPublicQueues(); }
            catch (MessageQueueException error)
            {
                Check.That(error.Message.Length > 0);
                return;
            }
            throw new Exception("there was a directory");
        });
        Check.Scenario("a machine has an identifier", () => Check.That(MessageQueue.GetMachineId(".") != Guid.Empty));
    }

    static int Main()
    {
        Properties();
        Formatters();
        Reading();
        Later();
        Transactions();
        Queues();
        return Check.Failed == 0 ? 0 : 1;
    }
}
