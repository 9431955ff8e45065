"""Small documents of Word, OpenDocument and EPUB, of the parts that the formats demand."""

import io
import zipfile

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
CONTAINER = (
    '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)


def archive(parts: dict[str, str | bytes], stored: str = "", packed: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of parts; ``stored`` comes first and is not packed."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as made:
        for name in sorted(parts, key=lambda name: name != stored):
            packing = zipfile.ZIP_STORED if name == stored else packed
            made.writestr(name, parts[name], packing)
    return written.getvalue()


def parts_of(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode("utf-8", "surrogateescape") for name in archive.namelist()}


def run(text: str, *formats: str) -> str:
    """A run of a Word document's; formats such as b and i."""
    properties = f"<w:rPr>{''.join(f'<w:{one}/>' for one in formats)}</w:rPr>" if formats else ""
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def docx(body: str, **more: str) -> bytes:
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "word/document.xml": f"{HEAD}<w:document {W}><w:body>{body}</w:body></w:document>",
        "word/media/image1.png": b"\x89PNG one two",
        "docProps/app.xml": "<a>one two</a>",
    }
    return archive(parts | {f"word/{name}.xml": f"{HEAD}<w:x {W}>{text}</w:x>" for name, text in more.items()})


def odt(body: str) -> bytes:
    content = f'<office:document-content xmlns:office="{OFFICE}" xmlns:text="{TEXT}">{body}</office:document-content>'
    kind = "application/vnd.oasis.opendocument.text"
    return archive({"mimetype": kind, "content.xml": HEAD + content, "meta.xml": "<a>one two</a>"}, "mimetype")


def epub(**pages: str) -> bytes:
    parts: dict[str, str | bytes] = {f"{name}.xhtml": page for name, page in pages.items()}
    table = "<ncx><navMap><navPoint><navLabel><text>one two</text></navLabel></navPoint></navMap></ncx>"
    parts |= {"META-INF/container.xml": CONTAINER, "book.opf": "<package>one two</package>", "toc.ncx": table}
    return archive(parts | {"mimetype": "application/epub+zip"}, "mimetype")


A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
X = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def pptx(body: str) -> bytes:
    slide = f"<p:sld {P} {A}><p:cNvPr id='1' descr='one two'/><p:txBody>{body}</p:txBody></p:sld>"
    return archive({"ppt/presentation.xml": f"<p:presentation {P}/>", "ppt/slides/slide1.xml": HEAD + slide})


def xlsx(strings: str, cells: str = "", **tables: str) -> bytes:
    """A workbook of shared strings, such as <si><t>one</t></si>, the cells of a sheet, and tables with one head."""
    sheet = f"<worksheet {X}><sheetData>{cells}</sheetData></worksheet>"
    parts: dict[str, str | bytes] = {"xl/workbook.xml": f"<workbook {X}><sheet name='one two'/></workbook>"}
    for name, head in tables.items():
        parts[f"xl/tables/{name}.xml"] = f"<table {X}><tableColumn name='{head}'/></table>"
    return archive(parts | {"xl/sharedStrings.xml": f"<sst {X}>{strings}</sst>", "xl/worksheets/sheet1.xml": sheet})


def pdf(*pages, attributes="", trailer=""):
    """A PDF whose pages have these lines, each (left, bottom, size, text), in Courier: a letter is 0.6 sizes wide."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = ["/Type/Catalog/Pages 2 0 R>>", f"/Type/Pages/Count {len(pages)}/Kids[{kids}]>>"]
    objects.append("/Type/Font/Subtype/Type1/BaseFont/Courier>>")
    for n, lines in enumerate(pages):
        content = "".join(f"BT /F {size} Tf {left} {bottom} Td ({text}) Tj ET\n" for left, bottom, size, text in lines)
        page = f"/Type/Page/Parent 2 0 R/Resources<</Font<</F 3 0 R>>>>/Contents {5 + 2 * n} 0 R"
        objects.append(f"{page} {attributes or '/MediaBox[0 0 600 800]'}>>")
        objects.append(f"/Length {len(content)}>>stream\n{content}endstream\n")
    written = "".join(f"{n} 0 obj<<{text}endobj\n" for n, text in enumerate(objects, 1))
    return f"%PDF-1.4\n{written}trailer<</Root 1 0 R {trailer}>>".encode()
