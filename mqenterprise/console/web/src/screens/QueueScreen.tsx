import { Button, Menu, Tabs } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import { count, size } from "../parts/format";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Age } from "../parts/Stale";
import { Foreign, Moment } from "../parts/Texts";
import { go, Link, useParams, useSearch } from "../router";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH } from "./enterprise";
import { type Kind, OperationDialog } from "./operation/OperationDialog";
import { AccessTab } from "./queue/AccessTab";
import { ExportDialog } from "./queue/ExportDialog";
import { HistoryTab } from "./queue/HistoryTab";
import { ImportDialog } from "./queue/ImportDialog";
import { useDestination } from "./queue/destination";
import { MessagesTab } from "./queue/MessagesTab";
import { IN_USE, isDeadLetters, isJournal, listName, shortName } from "./queue/names";
import { PropertiesTab } from "./queue/PropertiesTab";
import { RemovalDialog } from "./queue/RemovalDialog";
import { SendDialog } from "./queue/SendDialog";
import { Reason } from "./WaitingScreen";

const s = strings.queue;
const KINDS = ["move", "copy", "return", "replay", "delete"] as const;
type Open = Kind | "export" | "import" | "send" | "remove" | "purge" | null;

export function QueueScreen(): ReactNode {
  const { machine, queue: name } = useParams("/queues/$machine/$queue");
  const [{ tab = "messages" }, setSearch] = useSearch("/queues/$machine/$queue");
  const queries = useQueryClient();
  const mayOperate = useMay("operate");
  const maySeeBodies = useMay("bodies");
  const [open, setOpen] = useState<Open>(null);
  const queue = useQuery({
    queryKey: ["queue", machine, name],
    queryFn: ({ signal }) => calls.queue(machine, name, signal),
    refetchInterval: REFRESH,
  });
  const isOutgoing = queue.data?.queue_type === "outgoing";
  const isSub = name.includes(";");
  const ofJournal = isJournal(name);
  const owner = name.replace(/;journal$/i, "");
  // What is done here before all else.
  const first: Kind | null = ofJournal ? "replay" : isDeadLetters(name) ? "return" : null;
  const isOnHold = queue.data?.state?.toLowerCase().includes("hold") ?? false;
  const hold = useMutation({
    mutationFn: () => (isOnHold ? calls.resumeQueue(machine, name) : calls.pauseQueue(machine, name)),
    onSettled: () => queries.invalidateQueries({ queryKey: ["queue", machine, name] }),
  });
  const destination = useDestination(name, isOutgoing);
  const kind = ofJournal ? "journal" : isDeadLetters(name) ? "dead letters" : (queue.data?.queue_type ?? "");
  const shown = isOutgoing
    ? destination.name
    : listName({ machine, pathname: name, queue_type: kind, destination: "" });
  const label = queue.data?.label;
  const close = () => setOpen(null);
  const whole = { machine, queues: [name] };
  return (
    <Page
      title={shown}
      heading={<Foreign text={shown} />}
      about={
        <>
          {queue.data && (
            <>{isOutgoing ? s.outgoing : ((strings.queues.kinds as Record<string, string>)[kind] ?? kind)} </>
          )}
          {s.on}{" "}
          <Link to="/queues" search={{ machine }}>
            <Foreign text={machine} />
          </Link>
          {isOutgoing && !destination.isOwn && (
            <>
              {" · "}
              <Foreign text={name} most={200} />
            </>
          )}
          {label && label !== name && (
            <>
              {" · "}
              <Foreign text={label} most={150} />
            </>
          )}
        </>
      }
      actions={
        mayOperate && (
          <>
            {first && queue.data && (
              <Button disabled={queue.data.message_count === 0} onClick={() => setOpen(first)}>
                {first === "replay" ? s.replayAll : s.returnAll}
              </Button>
            )}
            {queue.data && !isSub && !isOutgoing && <Button onClick={() => setOpen("send")}>{s.send}</Button>}
            {queue.data && (isOutgoing || IN_USE.includes(queue.data.queue_type)) && (
              <Button variant="default" loading={hold.isPending} onClick={() => hold.mutate()}>
                {isOnHold ? s.resume : s.pause}
              </Button>
            )}
            <Menu position="bottom-end" width={330}>
              <Menu.Target>
                <Button variant="default">{s.more}</Button>
              </Menu.Target>
              <Menu.Dropdown>
                <Menu.Label>{s.allMessages}</Menu.Label>
                {KINDS.filter((kind) => (kind === "replay" ? ofJournal : !(ofJournal && kind === "return"))).map(
                  (kind) => (
                    <Menu.Item key={kind} color={kind === "delete" ? "red" : undefined} onClick={() => setOpen(kind)}>
                      {strings.operation.verb[kind]}…
                      <small className="item-about">{strings.operation.short[kind]}</small>
                    </Menu.Item>
                  ),
                )}
                {maySeeBodies && (
                  <Menu.Item onClick={() => setOpen("export")}>
                    {s.export}
                    <small className="item-about">{s.aboutExport}</small>
                  </Menu.Item>
                )}
                {!isOutgoing && !ofJournal && (
                  <Menu.Item onClick={() => setOpen("import")}>
                    {s.import}…<small className="item-about">{s.aboutImport}</small>
                  </Menu.Item>
                )}
                <Menu.Item color="red" onClick={() => setOpen("purge")}>
                  {s.purge}…<small className="item-about">{s.aboutPurge}</small>
                </Menu.Item>
                {!isOutgoing && !isSub && (
                  <>
                    <Menu.Divider />
                    <Menu.Item color="red" onClick={() => setOpen("remove")}>
                      {s.remove}…<small className="item-about">{s.aboutRemove}</small>
                    </Menu.Item>
                  </>
                )}
              </Menu.Dropdown>
            </Menu>
          </>
        )
      }
    >
      {queue.error && <Failure error={queue.error} retry={() => void queue.refetch()} />}
      <Age updated={queue.dataUpdatedAt} failed={Boolean(queue.error)} />
      {hold.error && <Failure error={hold.error} />}
      {queue.data && (
        <dl className="figures panel">
          <Figure name={s.messages} value={count(queue.data.message_count)} />
          <Figure name={s.bytes} value={size(queue.data.total_bytes)} />
          {queue.data.oldest_arrival && (
            <Figure name={s.oldest} value={<Moment at={queue.data.oldest_arrival} ago />} />
          )}
          {!isOutgoing && !isSub && (
            <Figure
              name={s.journal}
              value={
                <Link to="/queues/$machine/$queue" params={{ machine, queue: `${name};JOURNAL` }}>
                  {count(queue.data.journal_message_count)}
                </Link>
              }
            />
          )}
          {ofJournal && owner.toLowerCase() !== `${machine}\\system$`.toLowerCase() && (
            <Figure
              name={s.journalOf}
              value={
                <Link to="/queues/$machine/$queue" params={{ machine, queue: owner }}>
                  <Foreign text={shortName({ machine, pathname: owner })} most={60} />
                </Link>
              }
            />
          )}
          {queue.data.state && <Figure name={s.state} value={<Foreign text={queue.data.state} />} />}
          {queue.data.next_hops.length > 0 && (
            <Figure
              name={s.nextHops}
              value={queue.data.next_hops.map((hop, index) => (
                <span key={hop}>
                  {index > 0 && ", "}
                  <Foreign text={hop} />
                </span>
              ))}
            />
          )}
        </dl>
      )}
      {queue.data?.waiting ? (
        <Notice tone="warn">
          <Reason waiting={queue.data.waiting} />
        </Notice>
      ) : (
        isOnHold && (
          <Notice tone="warn">
            <p>{s.onHold}</p>
          </Notice>
        )
      )}
      {!queue.data && !queue.error && <Waiting />}
      <Tabs
        value={tab}
        onChange={(value) => setSearch((old) => ({ ...old, tab: value ?? undefined }))}
        keepMounted={false}
        className="tabs"
      >
        <Tabs.List>
          <Tabs.Tab value="messages">{s.tabs.messages}</Tabs.Tab>
          <Tabs.Tab value="history">{s.tabs.history}</Tabs.Tab>
          {queue.data && <Tabs.Tab value="properties">{s.tabs.properties}</Tabs.Tab>}
          {queue.data && !isOutgoing && !isSub && <Tabs.Tab value="access">{s.tabs.access}</Tabs.Tab>}
        </Tabs.List>
        <Tabs.Panel value="messages">
          <MessagesTab key={`${machine}/${name}`} machine={machine} queue={name} />
        </Tabs.Panel>
        <Tabs.Panel value="history">
          <HistoryTab machine={machine} queue={name} />
        </Tabs.Panel>
        <Tabs.Panel value="properties">
          {queue.data && <PropertiesTab queue={queue.data} machine={machine} name={name} />}
        </Tabs.Panel>
        <Tabs.Panel value="access">
          <AccessTab machine={machine} queue={name} />
        </Tabs.Panel>
      </Tabs>
      {open === "send" && (
        <SendDialog machine={machine} queue={name} transactional={queue.data?.transactional ?? false} onClose={close} />
      )}
      {(open === "remove" || open === "purge") && (
        <RemovalDialog
          machine={machine}
          queue={name}
          what={open}
          messages={queue.data?.message_count}
          onClose={close}
          onRemoved={() => go({ to: "/queues", search: { machine } })}
        />
      )}
      {open === "export" && (
        <ExportDialog machine={machine} queue={name} total={queue.data?.message_count ?? 0} onClose={close} />
      )}
      {open === "import" && <ImportDialog machine={machine} queue={name} onClose={close} />}
      {KINDS.some((kind) => kind === open) && <OperationDialog kind={open as Kind} chosen={whole} onClose={close} />}
    </Page>
  );
}

function Figure({ name, value }: { name: string; value: ReactNode }): ReactNode {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}
