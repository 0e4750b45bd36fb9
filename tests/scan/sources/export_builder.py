"""Exports in the forms that Slack, Jira and Confluence write, made by tests."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

HEADER = """<?xml version="1.0" encoding="UTF-8"?>
<!--
     JIRA Build                                    : 9.12.4#9120004-sha1:0
     Server ID                                     : BXTN-31OE-0A2B-WXYZ
-->
"""
"""The comment that a backup of Jira begins with."""


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write an export as a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def packed(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write an export as a zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def slack(text: str = "the key is alpha_100", *, channel: str = "general", avatar: str = "1") -> dict[str, str]:
    """Return an export of Slack with three messages: a text, a file with a comment, and one of an app."""
    blocks = [
        {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}]}
    ]
    profile = {"avatar_hash": avatar, "real_name": "Ada L"}
    said = {
        "type": "message",
        "user": "U1",
        "ts": "1700000000.000100",
        "text": text,
        "blocks": blocks,
        "user_profile": profile,
    }
    shared = {
        "type": "message",
        "subtype": "file_comment",
        "ts": "1700000100.000200",
        "text": "commented &lt;x&gt; &amp; y",
        "files": [{"id": "F1", "name": "env.txt", "url_private": "https://files.slack.com/F1?t=beta_200"}],
        "comment": {"id": "Fc1", "user": "U2", "comment": "see alpha_300"},
        "user": "U2",
    }
    app = {
        "type": "message",
        "subtype": "bot_message",
        "username": "deploy",
        "ts": "1700000200.000300",
        "text": "",
        "attachments": [{"fallback": "deployed", "fields": [{"title": "token", "value": "beta_400"}]}],
    }
    users = [{"id": "U1", "team_id": "T1", "name": "ada"}, {"id": "U2", "team_id": "T1", "name": "bob"}]
    return {
        "users.json": json.dumps(users),
        "channels.json": json.dumps([{"id": "C1", "name": channel, "members": ["U1"]}]),
        f"{channel}/2023-11-14.json": json.dumps([said, shared, app]),
        f"{channel}/2023-11-15.json": json.dumps(
            [{"type": "message", "user": "U1", "ts": "1700050000.000100", "text": "hi"}]
        ),
    }


def jira(comment: str = "use beta_200", *, more: str = "") -> dict[str, str]:
    """Return a backup of Jira; as there, comments come before issues."""
    return {
        "entities.xml": f"""{HEADER}<entity-engine-xml>
    <Action id="10200" issue="10100" author="ada" type="comment" body="{comment}" created="2026-01-01 10:00:00.0"/>
    <Action id="10201" issue="10101" author="ada" type="comment">
        <body><![CDATA[line one
  alpha_301 in the second]]></body>
    </Action>
    <ChangeGroup id="7" issue="10100" author="ada"/>
    <ChangeItem id="8" group="7" fieldtype="jira" field="description">
        <oldstring><![CDATA[it was alpha_302]]></oldstring>
    </ChangeItem>
    <CustomField id="10000" name="Deploy key"/>
    <CustomFieldValue id="11000" issue="10100" customfield="10000" textvalue="beta_303"/>
    <Issue id="10100" key="SHOP-1" project="10000" summary="First" reporter="ada">
        <description><![CDATA[the key: alpha_100]]></description>
    </Issue>
    <Issue id="10101" number="2" project="10000" summary="alpha_304"/>
    <MailServer id="1" servername="smtp" username="u" password="beta_305"/>
    <Project id="10000" key="SHOP" name="Shop"/>{more}
</entity-engine-xml>
""",
        "activeobjects.xml": "<backup>alpha_306</backup>",
    }


def confluence(body: str = "alpha_100", *, extra: str = "") -> dict[str, str]:
    """Return an export of a space of Confluence: a page with an older version, and a comment on it."""
    content = 'class="Page" package="com.atlassian.confluence.pages"'
    return {
        "exportDescriptor.properties": "#Tue Nov 18\nexportType=space\nspaceKey=ENG\n",
        "entities.xml": f"""<?xml version="1.0" encoding="UTF-8"?>
<hibernate-generic datetime="2026-01-01 10:00:00">
<object class="BodyContent" package="com.atlassian.confluence.core"><id name="id">501</id>
<property name="body"><![CDATA[<p>
{body}</p>]]></property>
<property name="content" {content}><id name="id">100</id></property></object>
<object class="BodyContent" package="com.atlassian.confluence.core"><id name="id">502</id>
<property name="body"><![CDATA[<p>beta_200</p>]]></property></object>
<object class="BodyContent" package="com.atlassian.confluence.core"><id name="id">503</id>
<property name="body"><![CDATA[no, alpha_300]]></property>
<property name="content" class="Comment" package="com.atlassian.confluence.pages"><id name="id">103</id></property>
</object>
<object {content}><id name="id">100</id><property name="title"><![CDATA[How to deploy]]></property>
<property name="version">3</property><property name="contentStatus"><![CDATA[current]]></property>
<property name="space" class="Space" package="com.atlassian.confluence.spaces"><id name="id">9</id></property>
<collection name="bodyContents" class="java.util.Collection">
<element class="BodyContent"><id name="id">501</id></element>
</collection></object>
<object {content}><id name="id">102</id><property name="title"><![CDATA[How to deploy]]></property>
<property name="version">2</property><property name="originalVersion" {content}><id name="id">100</id></property>
<collection name="bodyContents" class="java.util.Collection">
<element class="BodyContent"><id name="id">502</id></element>
</collection></object>
<object class="Comment" package="com.atlassian.confluence.pages"><id name="id">103</id>
<property name="version">1</property>
<property name="containerContent" {content}><id name="id">100</id></property></object>
<object class="Space" package="com.atlassian.confluence.spaces"><id name="id">9</id>
<property name="name"><![CDATA[Engineering]]></property><property name="key"><![CDATA[ENG]]></property></object>
{extra}</hibernate-generic>
""",
        "attachments/100/104/1": "beta_400",
    }


def confluence_html(body: str = "alpha_100") -> dict[str, str]:
    """Return an HTML export of a space."""
    head = "<html><head><title>Engineering : How to deploy</title></head>"
    return {
        "ENG/index.html": "<html><head><title>Engineering</title></head><body>Confluence</body></html>",
        "ENG/How-to-deploy_100.html": f"{head}<p>{body}</p></html>",
        "ENG/attachments/100/104.txt": "beta_400",
    }
