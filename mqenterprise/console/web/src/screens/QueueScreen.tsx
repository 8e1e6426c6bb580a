import { Button, Menu, Tabs } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { calls } from "../api/calls";
import { useMay } from "../api/session";
import { count, size } from "../parts/format";
import { Failure, Notice, Waiting } from "../parts/Notices";
import { Age } from "../parts/Stale";
import { Foreign, Moment } from "../parts/Texts";
import { Page } from "../shell/Page";
import { strings } from "../strings";
import { REFRESH } from "./enterprise";
import { type Kind, OperationDialog } from "./operation/OperationDialog";
import { AccessTab } from "./queue/AccessTab";
import { HistoryTab } from "./queue/HistoryTab";
import { useDestination } from "./queue/destination";
import { MessagesTab } from "./queue/MessagesTab";
import { shortName } from "./queue/names";
import { PropertiesTab } from "./queue/PropertiesTab";
import { RemovalDialog } from "./queue/RemovalDialog";
import { SendDialog } from "./queue/SendDialog";

const s = strings.queue;
type Open = Kind | "send" | "remove" | "purge" | null;

export function QueueScreen(): ReactNode {
  const { machine, queue: name } = useParams({ from: "/queues/$machine/$queue" });
  const { tab = "messages" } = useSearch({ from: "/queues/$machine/$queue" });
  const navigate = useNavigate({ from: "/queues/$machine/$queue" });
  const queries = useQueryClient();
  const mayOperate = useMay("operate");
  const [open, setOpen] = useState<Open>(null);
  const queue = useQuery({
    queryKey: ["queue", machine, name],
    queryFn: ({ signal }) => calls.queue(machine, name, signal),
    refetchInterval: REFRESH,
  });
  const isOutgoing = queue.data?.queue_type === "outgoing";
  const isSub = name.includes(";");
  const isOnHold = queue.data?.state?.toLowerCase().includes("hold") ?? false;
  const hold = useMutation({
    mutationFn: () => (isOnHold ? calls.resumeQueue(machine, name) : calls.pauseQueue(machine, name)),
    onSettled: () => queries.invalidateQueries({ queryKey: ["queue", machine, name] }),
  });
  const destination = useDestination(name, isOutgoing);
  const shown = isOutgoing ? destination.name : shortName({ machine, pathname: name });
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
            <>
              {isOutgoing
                ? s.outgoing
                : ((strings.queues.kinds as Record<string, string>)[queue.data.queue_type] ??
                  queue.data.queue_type)}{" "}
            </>
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
            {queue.data && !isSub && !isOutgoing && <Button onClick={() => setOpen("send")}>{s.send}</Button>}
            {isOutgoing && (
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
                {(["move", "copy", "return", "replay", "delete"] as const).map((kind) => (
                  <Menu.Item key={kind} color={kind === "delete" ? "red" : undefined} onClick={() => setOpen(kind)}>
                    {strings.operation.verb[kind]}…<small className="item-about">{strings.operation.short[kind]}</small>
                  </Menu.Item>
                ))}
                <Menu.Item component="a" href={calls.exported(machine, { queue: [name] })} download>
                  {s.export}
                  <small className="item-about">{s.aboutExport}</small>
                </Menu.Item>
                <Menu.Item color="red" onClick={() => setOpen("purge")}>
                  {s.purge}…<small className="item-about">{s.aboutPurge}</small>
                </Menu.Item>
                <Menu.Divider />
                <Menu.Item color="red" disabled={isOutgoing || isSub} onClick={() => setOpen("remove")}>
                  {s.remove}…<small className="item-about">{s.aboutRemove}</small>
                </Menu.Item>
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
          {!isOutgoing && <Figure name={s.journal} value={count(queue.data.journal_message_count)} />}
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
      {isOnHold && (
        <Notice tone="warn">
          <p>{s.onHold}</p>
        </Notice>
      )}
      {!queue.data && !queue.error && <Waiting />}
      <Tabs
        value={tab}
        onChange={(value) => void navigate({ search: (old) => ({ ...old, tab: value ?? undefined }), replace: true })}
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
          <MessagesTab machine={machine} queue={name} />
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
          onRemoved={() => void navigate({ to: "/queues", search: { machine } })}
        />
      )}
      {open !== null && open !== "send" && open !== "remove" && open !== "purge" && (
        <OperationDialog kind={open} chosen={whole} onClose={close} />
      )}
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
