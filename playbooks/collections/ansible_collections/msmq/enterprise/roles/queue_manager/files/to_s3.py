"""Put a file into S3 unless it is there. Arguments: the file, and s3://BUCKET/PREFIX. AWS_ENDPOINT_URL is honoured."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import ClientError


def main() -> None:
    """Put it there, and say so."""
    file, place = Path(sys.argv[1]), urlsplit(sys.argv[2])
    key = "/".join(part for part in (place.path.strip("/"), file.name) if part)
    client = boto3.client("s3")
    try:
        present = client.head_object(Bucket=place.netloc, Key=key)["ContentLength"]
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchKey"):
            sys.exit(f"{sys.argv[2]}: {error}")
        present = None
    if present != file.stat().st_size:
        client.upload_file(str(file), place.netloc, key)
        print("stored")


main()
