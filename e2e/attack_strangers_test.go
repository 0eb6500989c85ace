package e2e_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// strangersMay is how much more memory than at rest the server may use for
// callers it does not know, however many of them one address has.
const strangersMay = 50 << 20

const (
	callCreate   = "/holdfast.iam.v2beta1.GroupsService/CreateGroup" // needs a token
	callExchange = "/holdfast.oidc.SecurityTokenService/Exchange"    // needs none of ours
	callPing     = "/holdfast.ping.v2beta1.PingService/Ping"         // needs none
	callWatch    = "/grpc.health.v1.Health/Watch"                    // needs none, and goes on for ever

	endless = 4<<20 - 1<<10 // bytes of a message: almost what the server takes
)

// An endlessMessage says that it is a message of a size that the server takes,
// sends almost all of it, and then nothing more until it is closed.
type endlessMessage struct {
	left   int
	begun  bool
	full   func() // is called once all is sent that will be
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

// knock opens a connection over HTTP/2 that stays until the test ends.
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

// pour makes calls on a connection whose messages never end, and returns when
// each has been refused or has sent what it will.
func pour(t *testing.T, cc *http2.ClientConn, n int, method string, header http.Header) {
	t.Helper()
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
			resp, err := cc.RoundTrip(r)
			if err != nil {
				return // shown out
			}
			defer resp.Body.Close()
			if method != callWatch {
				_, _ = io.Copy(io.Discard, resp.Body) // to its end, or until it is reset
				return
			}
			_, _ = io.ReadFull(resp.Body, make([]byte, 5))
		}()
	}
	all := make(chan struct{})
	go func() { settled.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(3 * time.Second): // held up by its window: it sends no more either
	}
}

// TestAttackStrangersMessages: callers without a token, or with one that was
// made up, send messages that are almost as large as messages may be, and never
// end. The server does not keep them.
func TestAttackStrangersMessages(t *testing.T) {
	const connections, streams = 3, 100
	forged := http.Header{"Authorization": {"Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJ4In0." + strings.Repeat("A", 86)}}
	for name, tt := range map[string]struct {
		mixed  bool // the connection's first request is not gRPC's, as behind some proxies
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
			p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir())
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

// askHealth makes a connection one of HTTP, on which gRPC is mixed in.
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

// atRest is the memory of a server that has served.
func atRest(t *testing.T, p *proc) int64 {
	t.Helper()
	for range 20 {
		procMust[any](t, p.owner(), http.MethodGet, "/iam/v2beta1/groups", nil)
	}
	return procResident(t, p)
}

// staysWithin fails the test if the server uses more memory than it may, and if
// it does not serve its owner.
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
