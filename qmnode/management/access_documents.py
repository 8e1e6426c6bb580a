"""Access control lists of queues as JSON."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from qmnode.administration.access_control import RIGHTS, TRUSTEES, Change, QueueAccessList


class AccessRuleDocument(BaseModel):
    """An entry of an access control list."""

    kind: Literal["allow", "deny"]
    trustee: str = Field(description="SID", examples=["S-1-1-0"])
    name: str | None = Field(description="For SIDs that have one everywhere", examples=["everyone"])
    rights: list[str] = Field(description="Names; bits without one in hexadecimal")
    mask: str = Field(description="MQQUEUEACCESSMASK (MS-MQMQ 2.2.24), hexadecimal")
    inherited: bool
    known: bool | None = Field(
        default=None,
        description="Whether anybody has the SID; an entry for one that nobody has lets nobody in. Null: not known now",
    )


class AccessDocument(BaseModel):
    """The access list of a queue."""

    owner: str | None = Field(description="SID")
    owner_name: str | None = Field(default=None, description="Where it is known here", examples=["user:alice"])
    unrestricted: bool = Field(description="There is no list: everybody may do everything")
    rules: list[AccessRuleDocument]
    other_entries: int = Field(description="Entries of other kinds, which are kept")

    @classmethod
    def of(cls, access: QueueAccessList) -> Self:
        """Make the document from the result of the operation."""
        return cls(
            owner=access.owner,
            owner_name=access.owner_name,
            unrestricted=access.unrestricted,
            rules=[
                AccessRuleDocument(
                    kind="allow" if rule.allows else "deny",
                    trustee=rule.trustee,
                    name=rule.name,
                    rights=list(rule.rights),
                    mask=f"0x{rule.mask:08X}",
                    inherited=rule.inherited,
                    known=rule.known,
                )
                for rule in access.rules
            ],
            other_entries=access.other_entries,
        )


class AccessChange(BaseModel):
    """Rights to allow, to deny, or to remove."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"change": "allow", "trustee": "everyone", "rights": ["send-message"]}},
    )

    change: Change
    trustee: str = Field(min_length=1, max_length=200, description=f"SID, or one of: {', '.join(TRUSTEES)}")
    rights: Annotated[list[str], Field(min_length=1, max_length=50)] = Field(description=f"Of: {', '.join(RIGHTS)}")
