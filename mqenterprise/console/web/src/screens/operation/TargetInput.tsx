import { TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { type ReactNode, useId } from "react";
import { useOffered } from "./targets";

/** Where messages go: any name, with the queues that the console knows to choose from. */
export function TargetInput({
  machine,
  label,
  description,
  value,
  onChange,
  required = false,
  focused = false,
}: {
  machine: string;
  label: string;
  description: string;
  value: string;
  onChange: (value: string) => void;
  required?: boolean;
  focused?: boolean;
}): ReactNode {
  const list = useId();
  const [text] = useDebouncedValue(value.trim(), 150);
  const offered = useOffered(machine, text);
  return (
    <>
      <TextInput
        label={label}
        description={description}
        value={value}
        list={list}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => onChange(event.currentTarget.value)}
        required={required}
        {...(focused && { "data-autofocus": true })}
      />
      <datalist id={list}>
        {offered.map((one) => (
          <option key={`${one.value}/${one.label}`} value={one.value} label={one.label} />
        ))}
      </datalist>
    </>
  );
}
