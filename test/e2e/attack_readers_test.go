package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// readersMay is the memory, in bytes, that the server may use for unread answers to the callers in one organization.
// The quota is 32 MiB, and the rest of the process may use as much again.
const readersMay = 64 << 20

const (
	largeAnswer = 13 << 20 // size of the large document, in bytes
	slowReaders = 8
)

// A library is a server with a large document that callers in two organizations may read.
type library struct {
	*world
	repo, digest string
	ours, theirs string // tokens of a caller in each of the two organizations
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	l := &library{world: serve(t, storetest.SQLite(t), server.Config{}, nil)}
	l.repo = l.world.repo(t, string(l.Organization), "app")
	l.digest = l.pushImage(t, "dev/app", "x", "amd64", "layer")
	large := strings.Replace(spdxOf("large"), `"packages"`,
		`"comment":"`+strings.Repeat("x", largeAnswer)+`","packages"`, 1)
	l.attach(t, "dev/app", "", l.digest, "application/spdx+json", large)
	viewer := string(resource.ManagedRoleUID("viewer"))
	reader := l.robot(t, string(l.Organization), "reader")
	l.bind(t, string(l.Organization), reader, viewer)
	l.ours = l.mint(t, resource.UID(reader), token.Claims{})
	other := must[*iampb.Group](t, l.overGRPC, l.Token, &iampb.CreateGroupRequest{
		Group: &iampb.Group{Name: "other"},
	}).GetUid()
	l.operate(t, "organizations", "payer", other) // otherwise the organization of dev mode pays for it
	guest := l.robot(t, other, "guest")
	l.bind(t, string(l.Organization), guest, viewer)
	l.theirs = l.mint(t, resource.UID(guest), token.Claims{})
	return l
}

func (l *library) path() string {
	return "/registry/v1/repos/" + l.repo + "/digest/" + l.digest + "/rawsbom"
}

// calls returns how many calls for the document the server has answered, with success or with an error.
func (l *library) calls(t *testing.T) int {
	t.Helper()
	n := 0
	for _, m := range regexp.MustCompile(`holdfast_call_duration_seconds_count\{code="[A-Z_]+",`+
		`method="[^"]*GetRawSbom"\} (\d+)`).FindAllStringSubmatch(
		l.send(t, "", http.MethodGet, "/metrics", "").body, -1) {
		calls, _ := strconv.Atoi(m[1]) // cannot fail, because the pattern matches only digits
		n += calls
	}
	return n
}

// askOverHTTP requests the document and does not read the answer.
func (l *library) askOverHTTP(t *testing.T, bearer string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(l.BaseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: holdfast.test\r\nAuthorization: Bearer %s\r\n\r\n",
		l.path(), bearer)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// askOverHTTP2 requests the document on a stream whose flow-control window stays closed. It still reads the frames on
// the connection.
func (l *library) askOverHTTP2(t *testing.T, bearer string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(l.BaseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var block bytes.Buffer
	enc, framer := hpack.NewEncoder(&block), http2.NewFramer(conn, conn)
	for _, f := range [][2]string{
		{":method", "GET"},
		{":scheme", "http"},
		{":authority", "holdfast.test"},
		{":path", l.path()},
		{"authorization", "Bearer " + bearer},
	} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
	}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return conn
}

// askOverGRPC requests the document on a connection of its own with the smallest possible window, and does not read
// the answer.
func (l *library) askOverGRPC(t *testing.T, bearer string) *grpc.ClientConn {
	t.Helper()
	conn := l.dial(t, insecure.NewCredentials(), grpc.WithInitialWindowSize(64<<10))
	stream, err := conn.NewStream(bearing(t, bearer),
		&grpc.StreamDesc{ServerStreams: true}, "/holdfast.registry.v1.Registry/GetRawSbom")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&registryv1pb.RawSbomRequest{RepoId: l.repo, Digest: l.digest}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestAttackSlowReaders lets eight callers in one organization request a document of 13 MiB without reading it. The
// server may keep the document in memory for only a few of them, must ask the others to retry, and must still serve
// another organization.
func TestAttackSlowReaders(t *testing.T) {
	for name, ask := range map[string]func(*library, *testing.T) io.Closer{
		"HTTP/1.1": func(l *library, t *testing.T) io.Closer { return l.askOverHTTP(t, l.ours) },
		"HTTP/2":   func(l *library, t *testing.T) io.Closer { return l.askOverHTTP2(t, l.ours) },
		"gRPC":     func(l *library, t *testing.T) io.Closer { return l.askOverGRPC(t, l.ours) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t)
			got := l.send(t, l.ours, http.MethodGet, l.path(), "")
			if got.status != http.StatusOK || len(got.body) < largeAnswer {
				t.Fatalf("the document: status %d, %d bytes", got.status, len(got.body))
			}
			rest := heap()
			var readers []io.Closer
			for range slowReaders {
				readers = append(readers, ask(l, t))
			}
			procUntil(t, "all calls have been answered", func() bool { return l.calls(t) == 1+slowReaders })
			held := int64(heap()) - int64(rest)
			t.Logf("%d MB more than before", held>>20)
			if held > readersMay {
				t.Errorf("%d callers that do not read hold %d MB, want at most %d MB", slowReaders, held>>20, readersMay>>20)
			}
			if got := l.send(t, l.theirs, http.MethodGet, l.path(), ""); got.status != http.StatusOK ||
				len(got.body) < largeAnswer {
				t.Errorf("another organization gets %d %.200s", got.status, got.body)
			}
			for _, c := range readers {
				c.Close()
			}
			procUntil(t, "the organization can read again", func() bool {
				return l.send(t, l.ours, http.MethodGet, l.path(), "").status == http.StatusOK
			})
		})
	}
}

// heap returns the number of bytes on the heap after garbage collection.
func heap() uint64 {
	var m runtime.MemStats
	for range 2 { // the second collection empties the pools
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
