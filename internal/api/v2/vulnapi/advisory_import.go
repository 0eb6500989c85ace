package vulnapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"

	pb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
)

// Limits of the documents of an import, in bytes. A document that is larger than
// smallDocument is stored on disk until it has arrived completely, because an archive
// has its list of contents at its end.
const (
	maxDocument   = 8 << 30
	smallDocument = 1 << 20
	maxDocumentID = 1024 // maximum length of a document's name
)

type importStream = grpc.BidiStreamingServer[pb.ImportAdvisoriesRequest, pb.ImportAdvisoriesResponse]

func (s *server) ImportAdvisories(stream importStream) error {
	first, err := stream.Recv()
	if err != nil {
		return firstMessageError(err)
	}
	group, err := resource.ParseUID("parent", first.GetParent())
	if err != nil {
		return err
	}
	docs := &documents{stream: stream, dir: s.dir}
	m, err := s.Advisory.NewImport(stream.Context(), group, "", docs.sendProgress)
	if err != nil {
		return err
	}
	err = docs.each(m.Read)
	_, closing := m.Close()
	return errors.Join(closing, err)
}

// firstMessageError returns the error of a call whose first message did not arrive.
func firstMessageError(err error) error {
	if errors.Is(err, io.EOF) {
		return fault.Field("parent", "is required in the first message")
	}
	return err
}

// documents reads the documents of an import from its stream.
type documents struct {
	stream importStream
	dir    string
	done   int64 // total size of the documents that were read, in bytes
}

// sendProgress sends the progress of the import to the client.
func (d *documents) sendProgress(p advisory.Progress) error {
	out := &pb.ImportAdvisoriesResponse{Counts: countsOf(p.ImportResult), Bytes: d.done + p.Offset}
	for _, v := range p.Problems {
		out.Problems = append(out.Problems, &pb.ImportProblem{Name: v.Name, Reason: v.Reason})
	}
	return d.stream.Send(out)
}

// readDocument reads a document in format f, which it detects if f is "".
type readDocument func(name string, r io.ReaderAt, size int64, f vuln.ExploitFormat) error

// each calls f for every document.
func (d *documents) each(f readDocument) error {
	for {
		m, err := d.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		doc := m.GetDocument()
		switch {
		case doc == nil:
			return fault.Field("document", "must come before its data")
		case doc.GetSize() < 0 || doc.GetSize() > maxDocument:
			return fault.Field("document.size", "must be from 0 to %d bytes", int64(maxDocument))
		case doc.GetName() == "" || len(doc.GetName()) > maxDocumentID:
			return fault.Field("document.name", "must have 1 to %d bytes", maxDocumentID)
		case doc.GetFormat() != "" && !vuln.ExploitFormat(doc.GetFormat()).Valid():
			return fault.Field("document.format", "must be kev, epss, or empty to detect the format from the content")
		}
		if err := d.one(doc, f); err != nil {
			return err
		}
	}
}

// one receives the next document and calls f for it.
func (d *documents) one(
	doc *pb.ImportAdvisoriesRequest_Document, f readDocument,
) (err error) {
	if doc.GetSize() <= smallDocument {
		var b bytes.Buffer
		if err := d.receive(doc.GetSize(), &b); err != nil {
			return err
		}
		return f(doc.GetName(), bytes.NewReader(b.Bytes()), doc.GetSize(), vuln.ExploitFormat(doc.GetFormat()))
	}
	file, err := os.CreateTemp(d.dir, "import-*")
	if err != nil {
		return fmt.Errorf("store a document: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// The file loses its name now. The system frees its space when it is closed.
	if err := os.Remove(file.Name()); err != nil {
		return fmt.Errorf("store a document: %w", err)
	}
	if err := d.receive(doc.GetSize(), file); err != nil {
		return err
	}
	return f(doc.GetName(), file, doc.GetSize(), vuln.ExploitFormat(doc.GetFormat()))
}

// receive copies the bytes of a document from the stream.
func (d *documents) receive(size int64, w io.Writer) error {
	for left := size; left > 0; {
		m, err := d.stream.Recv()
		if errors.Is(err, io.EOF) || err == nil && m.GetData() == nil {
			return fault.Field("data", "the document is shorter than its size says")
		}
		if err != nil {
			return err
		}
		if int64(len(m.GetData())) > left {
			return fault.Field("data", "the document is longer than its size says")
		}
		if _, err := w.Write(m.GetData()); err != nil {
			return fault.Outage("the disk", err)
		}
		left -= int64(len(m.GetData()))
	}
	return nil
}
