import { Fragment, type ReactNode } from "react";
import { strings } from "../strings";
import { moment, span } from "./format";
import { useNow, useZone } from "./preferences";
import { beginning, pieces, visible } from "./text";

/** A text of others: what would not be seen is made visible, and its direction ends with it. */
export function Foreign({ text, lines = false, most }: { text: string; lines?: boolean; most?: number }): ReactNode {
  const shown = most === undefined ? text : beginning(text, most);
  return (
    <bdi className={lines ? "foreign lines" : "foreign"} title={shown === text ? undefined : visible(text)}>
      {pieces(shown, lines).map((piece, index) =>
        piece.hidden === undefined ? (
          <Fragment key={index}>{piece.text}</Fragment>
        ) : (
          <span key={index} className="hidden-character">
            {piece.text}
          </span>
        ),
      )}
    </bdi>
  );
}

/** A text in a field, as it is shown elsewhere, where the field hides characters of it; else nothing. */
export function marked(text: string): ReactNode {
  return visible(text, true) === text ? undefined : (
    <>
      {strings.marked} <Foreign text={text} most={250} />
    </>
  );
}

/** A moment, and how long ago it was where `ago` is set. */
export function Moment({ at, ago = false }: { at: string | number | null | undefined; ago?: boolean }): ReactNode {
  const zone = useZone();
  if (at === null || at === undefined || at === "" || at === 0) return <span className="dim">{strings.none}</span>;
  const date = new Date(typeof at === "number" ? at * 1000 : at);
  if (Number.isNaN(date.getTime())) return <span className="dim">{strings.none}</span>;
  const other = moment(date, zone === "utc" ? "local" : "utc");
  return (
    <time dateTime={date.toISOString()} title={other}>
      {ago ? <Ago date={date} /> : moment(date, zone)}
    </time>
  );
}

function Ago({ date }: { date: Date }): ReactNode {
  const seconds = (useNow() - date.getTime()) / 1000;
  return seconds < 1 ? strings.now : strings.ago(span(seconds));
}

export function None(): ReactNode {
  return <span className="dim">{strings.none}</span>;
}
