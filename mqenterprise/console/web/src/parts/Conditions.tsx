import { ActionIcon, Button, Textarea, TextInput } from "@mantine/core";
import { type FormEvent, type ReactNode, useEffect, useState } from "react";
import { Icon } from "../shell/icons";
import { strings } from "../strings";
import { condition } from "./text";

const s = strings.messages;

/** Conditions for messages, each in a field of its own: all of them have to hold. */
export function Conditions({
  where,
  onFind,
  children,
}: {
  where: readonly string[];
  onFind: (where: readonly string[]) => void;
  /** Further fields. */
  children?: ReactNode;
}): ReactNode {
  const [drafts, setDrafts] = useState<readonly string[]>(where.length ? where : [""]);
  // Another address, as of a link or of the browser's history, says other conditions.
  const given = where.join("\0");
  useEffect(() => setDrafts(given ? given.split("\0") : [""]), [given]);
  const change = (index: number, value: string) =>
    setDrafts((old) => old.map((one, place) => (place === index ? value : one)));
  const find = (texts: readonly string[]) => {
    const wanted = texts.map(condition).filter(Boolean);
    setDrafts(wanted.length ? wanted : [""]);
    onFind(wanted);
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    find(drafts);
  };
  return (
    <form className="stack" onSubmit={submit}>
      <div className="row end">
        {drafts.map((draft, index) => {
          const props = {
            className: "stretch",
            label: index ? s.and : s.where,
            value: draft,
            spellCheck: false,
            ...(index === 0 && { description: s.whereHelp }),
            ...(drafts.length > 1 && {
              rightSection: (
                <ActionIcon
                  variant="subtle"
                  color="gray"
                  size="sm"
                  aria-label={s.leaveOut(index + 1)}
                  onClick={() => setDrafts((old) => old.filter((_, place) => place !== index))}
                >
                  <Icon name="close" size={16} />
                </ActionIcon>
              ),
            }),
          };
          // One line loses line feeds, which belong to what is looked for.
          return draft.includes("\n") ? (
            <Textarea
              key={index}
              {...props}
              rows={Math.min(draft.split("\n").length, 6)}
              onChange={(event) => change(index, event.currentTarget.value)}
            />
          ) : (
            <TextInput key={index} {...props} onChange={(event) => change(index, event.currentTarget.value)} />
          );
        })}
        <Button variant="subtle" onClick={() => setDrafts((old) => [...old, ""])}>
          {s.another}
        </Button>
        <Button type="submit">{s.find}</Button>
        {where.length > 0 && (
          <Button variant="subtle" onClick={() => find([])}>
            {s.clear}
          </Button>
        )}
      </div>
      {children && <div className="row">{children}</div>}
    </form>
  );
}
