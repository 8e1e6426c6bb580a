import { TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { strings } from "../strings";
import { count } from "./format";

/** The largest quota of a queue, in KB: one more is no limit. */
export const LARGEST_QUOTA = 4_294_967_294;

/** Whether a text is a whole number from `least` to `most`, written with digits. */
export function isWhole(text: string, least: number, most: number): boolean {
  return /^-?\d{1,15}$/.test(text.trim()) && Number(text) >= least && Number(text) <= most;
}

/** The number of a text that may be left empty; null if it is. */
export function wholeOrNull(text: string): number | null {
  return text.trim() === "" ? null : Number(text);
}

/** A field for a whole number: what is typed stays as it is typed, and what is wrong with it is said beside it. */
export function WholeInput({
  label,
  value,
  onChange,
  least,
  most,
  empty,
  warning,
  disabled = false,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  least: number;
  most: number;
  /** What an empty field means, if it may be empty. */
  empty?: string;
  warning?: string | undefined;
  disabled?: boolean;
}): ReactNode {
  const isRight = isWhole(value, least, most) || (empty !== undefined && value.trim() === "");
  return (
    <TextInput
      label={label}
      description={empty}
      inputMode="numeric"
      autoComplete="off"
      value={value}
      disabled={disabled}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={isRight ? warning : strings.whole(count(least), count(most), empty !== undefined)}
      aria-invalid={!isRight}
    />
  );
}
