package vulnapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

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

// An import ends if fewer than minProgress bytes of a document arrive within importIdle. So a client that stops sending
// does not keep its space on disk.
const (
	importIdle  = time.Minute
	minProgress = 1 << 20
)

// A document must arrive within documentTime, plus a second for each minRate bytes of its size. So a client that is
// just fast enough to not be idle does not keep its space on disk for days. The largest document has less than three
// hours.
const (
	documentTime = 10 * time.Minute
	minRate      = 1 << 20
)

var errSlow = fault.New(fault.DeadlineExceeded,
	"Deadline exceeded: the document arrives too slowly, at less than 1 MiB per second; import it from another network")

var errIdle = fault.New(fault.DeadlineExceeded,
	"Deadline exceeded: too little data has arrived for a minute; import the document again")

// errFailed ends a call whose import has failed. Import.Close returns the reason.
var errFailed = errors.New("the import has failed")

type importStream = grpc.BidiStreamingServer[pb.ImportAdvisoriesRequest, pb.ImportAdvisoriesResponse]

func (s *server) ImportAdvisories(stream importStream) error {
	docs := &documents{stream: stream, dir: s.dir, spool: s.spool, idle: importIdle}
	docs.await()
	first, err := docs.receiveNext()
	if err != nil {
		return firstMessageError(err)
	}
	group, err := resource.ParseUID("parent", first.GetParent())
	if err != nil {
		return err
	}
	docs.tenant = s.Advisory.Tenant(stream.Context(), group)
	docs.requireRoom = func() error { return s.Advisory.RequireRoom(stream.Context(), group) }
	m, err := s.Advisory.NewImport(stream.Context(), group, "", docs.sendProgress)
	if err != nil {
		return err
	}
	docs.failed = m.Failed()
	err = docs.each(m.Read)
	_, closing := m.Close()
	if closing != nil && errors.Is(err, errFailed) {
		return closing
	}
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
	spool  *spool
	tenant resource.Tenant // tenant of the group of the import
	done   int64           // total size of the documents that were read, in bytes
	failed <-chan struct{} // closed when the import has failed; nil before it begins

	requireRoom func() error  // returns an error if a budget leaves no room for advisories
	idle        time.Duration // time in which minProgress bytes must arrive
	deadline    time.Time     // end of the current period of idle
	progress    int64         // bytes that have arrived in this period
	end         time.Time     // time by which the current document must have arrived; zero between documents
}

// received is a message of the client, or the error of receiving it.
type received struct {
	message *pb.ImportAdvisoriesRequest
	err     error
}

// await begins a period in which minProgress bytes, or the next message that is not data, must arrive.
func (d *documents) await() { d.deadline, d.progress = time.Now().Add(d.idle), 0 }

// receiveNext returns the next message, errIdle if too little arrives, errSlow if the document takes too long, or
// errFailed if the import has failed. After these errors the call must end, because another receive is still running.
func (d *documents) receiveNext() (*pb.ImportAdvisoriesRequest, error) {
	next := make(chan received, 1)
	go func() {
		m, err := d.stream.Recv()
		next <- received{m, err}
	}()
	until, late := d.deadline, errIdle
	if !d.end.IsZero() && d.end.Before(until) {
		until, late = d.end, errSlow
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case r := <-next:
		if d.progress += int64(len(r.message.GetData())); d.progress >= minProgress {
			d.await()
		}
		return r.message, r.err
	case <-d.failed: // the client learns of it without sending more
		return nil, errFailed
	case <-timer.C:
		return nil, late
	}
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
		d.await()
		m, err := d.receiveNext()
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
	if doc.GetFormat() == "" { // lists of exploits contain no advisories
		if err := d.requireRoom(); err != nil {
			return err
		}
	}
	release, err := d.spool.reserve(d.tenant, doc.GetSize())
	if err != nil {
		return err
	}
	defer release()
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
	d.end = time.Now().Add(documentTime + time.Duration(size/minRate)*time.Second)
	defer func() { d.end = time.Time{} }()
	for left := size; left > 0; {
		m, err := d.receiveNext()
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
