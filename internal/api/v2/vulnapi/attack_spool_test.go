package vulnapi

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// TestAttackImportSpool: a tenant begins 32 concurrent imports of the largest documents, and the server stores only one
// document. Another tenant can import, and so can the first one after its import has ended.
func TestAttackImportSpool(t *testing.T) {
	s := newSpool()
	var releases []func()
	for range 32 {
		release, err := s.reserve("attacker", maxDocument)
		if err == nil {
			releases = append(releases, release)
		} else if !errors.Is(err, fault.ResourceExhausted) {
			t.Fatal(err)
		}
	}
	if len(releases) != 1 {
		t.Fatalf("%d documents of %d bytes are accepted, want 1", len(releases), int64(maxDocument))
	}
	other, err := s.reserve("other", maxDocument)
	if err != nil {
		t.Fatal(err)
	}
	other()
	releases[0]()
	again, err := s.reserve("attacker", maxDocument)
	if err != nil {
		t.Fatal(err)
	}
	again()
	if len(s.used) != 0 {
		t.Errorf("%d tenants are left", len(s.used))
	}
}

// spooler receives documents as the server does, with a short time in which data must arrive.
type spooler struct {
	pb.UnimplementedAdvisoryWritingServiceServer
	dir   string
	spool *spool
	ended chan error
}

func (s *spooler) ImportAdvisories(stream importStream) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	docs := &documents{stream: stream, dir: s.dir, spool: s.spool, tenant: "attacker", idle: 3 * time.Second,
		requireRoom: func() error { return nil }}
	err := docs.each(func(string, io.ReaderAt, int64, vuln.ExploitFormat) error { return nil })
	s.ended <- err
	return err
}

// TestAttackIdleImport: a client announces a large document and then sends nothing, or single bytes. The import ends,
// and its space is free. An import whose data keeps arriving takes as long as it needs.
func TestAttackIdleImport(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &spooler{dir: t.TempDir(), spool: newSpool(), ended: make(chan error, 1)}
	server := grpc.NewServer()
	pb.RegisterAdvisoryWritingServiceServer(server, s)
	go func() { _ = server.Serve(listener) }() // it returns an error when it is stopped
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// send announces a document of a size, and sends pieces with pauses until the import ends.
	send := func(size int64, piece int, pause time.Duration, pieces int) error {
		stream, err := pb.NewAdvisoryWritingServiceClient(conn).ImportAdvisories(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		messages := []*pb.ImportAdvisoriesRequest{{}, {Part: &pb.ImportAdvisoriesRequest_Document_{
			Document: &pb.ImportAdvisoriesRequest_Document{Name: "osv.zip", Size: size},
		}}}
		for range pieces {
			messages = append(messages, &pb.ImportAdvisoriesRequest{
				Part: &pb.ImportAdvisoriesRequest_Data{Data: make([]byte, piece)},
			})
		}
		for i, m := range messages {
			if i > 2 {
				time.Sleep(pause)
			}
			if stream.Send(m) != nil { // the import has ended
				break
			}
		}
		if pieces > 0 {
			_ = stream.CloseSend() // the result of the import is checked instead
		}
		return <-s.ended
	}
	if err := send(maxDocument, 0, 0, 0); !errors.Is(err, fault.DeadlineExceeded) {
		t.Errorf("an import without data ends with %v", err)
	}
	if err := send(maxDocument, 1, 400*time.Millisecond, 50); !errors.Is(err, fault.DeadlineExceeded) {
		t.Errorf("an import of single bytes ends with %v", err)
	}
	if len(s.spool.used) != 0 {
		t.Error("an import that has ended still has space on disk")
	}
	if err := send(4<<20, 1<<20, 1200*time.Millisecond, 4); err != nil {
		t.Errorf("an import whose data keeps arriving ends with %v", err)
	}
}

// pacedStream is a stream of one document, in pieces of a size with pauses between them.
type pacedStream struct {
	grpc.ServerStream
	document *pb.ImportAdvisoriesRequest
	left     int64
	piece    int64
	pause    time.Duration
}

func (p *pacedStream) Send(*pb.ImportAdvisoriesResponse) error { return nil }

func (p *pacedStream) Recv() (*pb.ImportAdvisoriesRequest, error) {
	if m := p.document; m != nil {
		p.document = nil
		return m, nil
	}
	if p.left == 0 {
		return nil, io.EOF
	}
	time.Sleep(p.pause)
	n := min(p.piece, p.left)
	p.left -= n
	return &pb.ImportAdvisoriesRequest{Part: &pb.ImportAdvisoriesRequest_Data{Data: make([]byte, n)}}, nil
}

// TestAttackSlowImport: a client sends a large document just fast enough to not be idle, to keep its space on disk for
// days. The import ends. A document at a usual speed arrives, and so does a small one at a low speed.
func TestAttackSlowImport(t *testing.T) {
	for name, tt := range map[string]struct {
		size, piece int64
		pause       time.Duration
		err         error
	}{
		"a MiB every 50 seconds":  {1 << 30, 1 << 20, 50 * time.Second, errSlow},
		"a MiB every 2.5 seconds": {300 << 20, 1 << 20, 2500 * time.Millisecond, nil},
		"small, a MiB in a while": {8 << 20, 1 << 20, 50 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream := &pacedStream{left: tt.size, piece: tt.piece, pause: tt.pause, document: &pb.ImportAdvisoriesRequest{
					Part: &pb.ImportAdvisoriesRequest_Document_{
						Document: &pb.ImportAdvisoriesRequest_Document{Name: "osv.zip", Size: tt.size},
					},
				}}
				docs := &documents{stream: stream, dir: t.TempDir(), spool: newSpool(), idle: importIdle,
					requireRoom: func() error { return nil }}
				begin := time.Now()
				err := docs.each(func(string, io.ReaderAt, int64, vuln.ExploitFormat) error { return nil })
				if !errors.Is(err, tt.err) || err == nil != (tt.err == nil) {
					t.Errorf("the import ends with %v, want %v", err, tt.err)
				}
				if len(docs.spool.used) != 0 {
					t.Error("the import still has space on disk")
				}
				if took := time.Since(begin); took > 3*time.Hour {
					t.Errorf("the import has had its space for %s", took)
				}
				time.Sleep(tt.pause) // until the last receive returns
			})
		})
	}
}
