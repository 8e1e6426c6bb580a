"""Write the generated files of this folder anew: ``python schemas/generate.py``."""

from pathlib import Path

from mqenterprise.directory.schema import openldap_ldif

HERE = Path(__file__).parent

if __name__ == "__main__":
    (HERE / "msmq-openldap.ldif").write_text(openldap_ldif(), encoding="ascii")
