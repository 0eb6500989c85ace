package e2e_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// strangersMay is the additional memory, in bytes, that the server may use for all unauthenticated callers from one
// address.
const strangersMay = 50 << 20

const (
	callCreate   = "/holdfast.iam.v2beta1.GroupsService/CreateGroup" // needs a token of this server
	callExchange = "/holdfast.oidc.SecurityTokenService/Exchange"    // needs no token of this server
	callPing     = "/holdfast.ping.v2beta1.PingService/Ping"         // needs no token
	callWatch    = "/grpc.health.v1.Health/Watch"                    // needs no token, and never ends

	endless = 4<<20 - 1<<10 // bytes of a message that is almost as large as the server's limit
)

// An endlessMessage announces a message of a size that the server accepts. It sends almost all of the message, and
// then nothing until it is closed.
type endlessMessage struct {
	left   int
	begun  bool
	full   func() // called when the last byte has been sent
	closed chan struct{}
	once   sync.Once
}

func newEndless(full func()) *endlessMessage {
	return &endlessMessage{left: endless, full: full, closed: make(chan struct{})}
}

func (e *endlessMessage) Read(b []byte) (int, error) {
	if !e.begun && len(b) >= 5 {
		e.begun = true
		b[0] = 0
		binary.BigEndian.PutUint32(b[1:], endless+100)
		return 5, nil
	}
	if e.left == 0 {
		e.once.Do(e.full)
		<-e.closed
		return 0, io.EOF
	}
	n := min(len(b), e.left)
	e.left -= n
	return n, nil
}

func (e *endlessMessage) Close() error {
	select {
	case <-e.closed:
	default:
		close(e.closed)
	}
	return nil
}

// knock opens an HTTP/2 connection that stays open until the test ends.
func knock(t *testing.T, address string) *http2.ClientConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	cc, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(conn)
	if err != nil {
		t.Fatal(err)
	}
	return cc
}

// pour makes n calls with endless messages on a connection. It returns when each call has been refused or has sent
// its last byte. The returned counter is the number of calls that have ended.
func pour(t *testing.T, cc *http2.ClientConn, n int, method string, header http.Header) *atomic.Int64 {
	t.Helper()
	ended := &atomic.Int64{}
	var settled sync.WaitGroup
	for range n {
		settled.Add(1)
		done := sync.OnceFunc(settled.Done)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://holdfast.test"+method, newEndless(done))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header.Clone()
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Te", "trailers")
		go func() {
			defer done()
			defer ended.Add(1)
			resp, err := cc.RoundTrip(r)
			if err != nil {
				return // the server has closed the connection
			}
			defer resp.Body.Close()
			if method != callWatch {
				_, _ = io.Copy(io.Discard, resp.Body) // reads until the body ends or the stream is reset
				return
			}
			_, _ = io.ReadFull(resp.Body, make([]byte, 5))
		}()
	}
	finished := make(chan struct{})
	go func() { settled.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(3 * time.Second): // flow control blocks the remaining calls, so they send nothing more
	}
	return ended
}

// TestAttackStrangersMessages sends messages that are almost as large as the limit and never end, without a token or
// with a forged token. The server must not keep these messages in memory.
func TestAttackStrangersMessages(t *testing.T) {
	const connections, streams = 3, 100
	forged := http.Header{
		"Authorization": {"Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJ4In0." + strings.Repeat("A", 86)},
	}
	for name, tt := range map[string]struct {
		mixed  bool // the connection's first request is not gRPC, as with some proxies
		method string
		header http.Header
	}{
		"no token":                 {false, callCreate, http.Header{}},
		"a token that was made up": {false, callCreate, forged},
		"a method that needs none": {false, callPing, http.Header{}},
		"one that judges tokens":   {false, callExchange, http.Header{}},
		"one that goes on":         {false, callWatch, http.Header{}},
		"an unknown method":        {false, "/x.Y/Z", http.Header{}},
		"mixed, no token":          {true, callCreate, http.Header{}},
		"mixed, made up":           {true, callCreate, forged},
		"mixed, needs none":        {true, callPing, http.Header{}},
		"mixed, judges tokens":     {true, callExchange, http.Header{}},
		"mixed, goes on":           {true, callWatch, http.Header{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := attacked(t)
			rest := atRest(t, p)
			for range connections {
				cc := knock(t, p.address)
				if tt.mixed {
					askHealth(t, cc)
				}
				pour(t, cc, streams, tt.method, tt.header)
			}
			staysWithin(t, p, rest, strangersMay)
		})
	}
}

// askHealth sends an HTTP request first, so that the connection mixes HTTP and gRPC.
func askHealth(t *testing.T, cc *http2.ClientConn) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://holdfast.test/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := cc.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// attacked starts a server whose memory the test measures. Its garbage collector runs often, so that the measured
// memory is close to the memory in use.
func attacked(t *testing.T) *proc {
	t.Helper()
	return procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "GOGC=20")
}

// atRest returns the memory that a server uses after a few requests.
func atRest(t *testing.T, p *proc) int64 {
	t.Helper()
	owner := p.owner()
	defer owner.close()
	for range 20 {
		procMust[any](t, owner, http.MethodGet, "/iam/v2beta1/groups", nil)
	}
	return procResident(t, p)
}

// staysWithin fails the test if the server uses more than may bytes in addition to rest, or no longer serves its
// owner.
func staysWithin(t *testing.T, p *proc, rest, may int64) {
	t.Helper()
	owner := p.owner()
	defer owner.close()
	most := int64(0)
	for range 20 {
		procMust[any](t, owner, http.MethodGet, "/iam/v2beta1/groups", nil)
		most = max(most, procResident(t, p)-rest)
	}
	t.Logf("%d MB more than the %d MB at rest", most>>20, rest>>20)
	if most > may {
		t.Errorf("the server uses %d MB more than at rest, want at most %d MB", most>>20, may>>20)
	}
}

// TestAttackStrangersHonest checks that authenticated callers can make the calls that are refused without a token,
// and that callers without a token get the reason for the refusal.
func TestAttackStrangersHonest(t *testing.T) {
	const unauthenticated, invalid, ok = "16", "3", "0"
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir())
	owner := http.Header{"Authorization": {"Bearer " + p.dev.Token}}
	// A message with a field that does not exist.
	large := protowire.AppendBytes(protowire.AppendTag(nil, 15, protowire.BytesType), make([]byte, endless))
	for name, tt := range map[string]struct {
		method  string
		header  http.Header
		message []byte
		want    string
	}{
		// Invalid because the group has no name.
		"a message of almost 4 MiB":          {callCreate, owner, large, invalid},
		"a call without a token":             {callCreate, http.Header{}, nil, unauthenticated},
		"a call with one that is made up":    {callCreate, http.Header{"Authorization": {"Bearer x"}}, nil, unauthenticated},
		"a method that needs none":           {callPing, http.Header{}, nil, ok},
		"one with a token all the same":      {callPing, owner, nil, ok},
		"one with a message that is too big": {callPing, http.Header{}, large[len(large)-100_000:], "3 or 8"},
		"a question after its health":        {"/grpc.health.v1.Health/Check", http.Header{}, nil, ok},
		"an unknown method":                  {"/x.Y/Z", owner, nil, "12"},
	} {
		for how, mixed := range map[string]bool{"": false, ", mixed": true} {
			t.Run(name+how, func(t *testing.T) {
				cc := knock(t, p.address)
				if mixed {
					askHealth(t, cc)
				}
				got := callRaw(t, cc, tt.method, tt.header, framed(0, tt.message))
				if got == "" || !strings.Contains(" "+tt.want+" ", " "+got+" ") {
					t.Errorf("grpc-status %q, want %s", got, tt.want)
				}
			})
		}
	}
}

// TestAttackStrangersBurst checks that many concurrent calls with a token succeed on a new connection, on which no
// call has been authenticated before.
func TestAttackStrangersBurst(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	for range 5 {
		conn := w.dial(t, insecure.NewCredentials())
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				_, st := invoke(t, conn, "/holdfast.iam.v2beta1.GroupsService/GetGroup", w.Token, &iampb.GetGroupRequest{
					Uid: string(w.Organization),
				})
				if st != nil {
					t.Error(st)
				}
			})
		}
		wg.Wait()
	}
}

// TestAttackTenantMessages sends endless messages with a token. The server waits for a limited
// number of them per organization and refuses the others long before their timeout. It still serves
// callers that send complete messages.
func TestAttackTenantMessages(t *testing.T) {
	const calls, slow = 90, 16
	p := attacked(t)
	header := http.Header{"Authorization": {"Bearer " + p.dev.Token}}
	for name, mixed := range map[string]bool{"": false, "mixed": true} {
		t.Run(name, func(t *testing.T) {
			cc := knock(t, p.address)
			if mixed {
				askHealth(t, cc)
			}
			start := time.Now()
			refused := pour(t, cc, calls, callCreate, header)
			procUntil(t, "most calls are refused", func() bool { return refused.Load() >= calls-slow })
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("refused after %s, only with the timeout", took)
			}
			if n := refused.Load(); n == calls {
				t.Errorf("all %d calls are refused, want the server to wait for %d", n, slow)
			}
			if got := callRaw(t, cc, callPing, header, framed(0, nil)); got != "0" {
				t.Errorf("another call on the connection: %q", got)
			}
			procMust[any](t, p.owner(), http.MethodPost, faultGroups(p, http.MethodPost), map[string]string{
				"name": "served" + name,
			})
		})
	}
}

// TestAttackStrangersBodies sends HTTP bodies that are almost as large as the limit and never end, without a token.
// The server's memory must stay small.
func TestAttackStrangersBodies(t *testing.T) {
	const connections = 200
	for name, path := range map[string]string{
		"the exchange of tokens": "/sts/exchange",
		"a method of the API":    "/iam/v2beta1/groups",
		"sign-in":                "/signin/password",
		"a passkey":              "/signin/passkey",
		"the registry's login":   "/v2/token",
		"the registry's uploads": "/v2/dev/app/blobs/uploads/",
		"nothing":                "/nowhere",
	} {
		t.Run(name, func(t *testing.T) {
			p := attacked(t)
			rest := atRest(t, p)
			body := make([]byte, endless)
			var wg sync.WaitGroup
			for range connections {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				wg.Go(func() {
					// The server may close the connection before it has read the request.
					_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
					_, _ = fmt.Fprintf(conn,
						"POST %s HTTP/1.1\r\nHost: holdfast.test\r\nContent-Type: "+
							"application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n",
						path, 4<<20)
					_, _ = conn.Write(body)
				})
			}
			wg.Wait()
			staysWithin(t, p, rest, strangersMay)
		})
	}
}
