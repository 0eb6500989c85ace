package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The limits that the server has for one client.
const (
	faultHeaderTime  = 10 * time.Second // time to send the headers
	faultHeaderBytes = 64 << 10
	faultBodyBytes   = 4 << 20
)

// TestFaultClients opens a thousand connections that send nothing, and some that send slowly. Other clients must be
// served, and the server must close connections that do not send their request in time.
func TestFaultClients(t *testing.T) {
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_MAX_CONNECTIONS_PER_ADDRESS=2000")
	var silent, idle []net.Conn
	for range 500 {
		silent = append(silent, faultDial(t, p))
		conn := faultDial(t, p)
		faultSend(t, conn, "GET /healthz HTTP/1.1\r\nHost: holdfast.test\r\n\r\n")
		faultStatus(t, conn, http.StatusOK)
		idle = append(idle, conn)
	}
	var wg sync.WaitGroup
	wg.Go(func() { faultDrip(t, faultDial(t, p), "GET /healthz HTTP/1.1\r\nX-Slow: ") })
	wg.Go(func() { faultDrip(t, faultDial(t, p), "PRI * HTTP/2.0\r\n") })
	for range 50 {
		procMust[any](t, p.owner(), http.MethodGet, faultGroups(p, http.MethodGet), nil)
	}
	faultMake(t, p)
	wg.Wait()
	for _, conn := range silent {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("a connection without data for %s: %v, want it closed", faultHeaderTime, err)
		}
	}
	faultSend(t, idle[0], "GET /healthz HTTP/1.1\r\nHost: holdfast.test\r\n\r\n")
	faultStatus(t, idle[0], http.StatusOK)
	p.stop()
}

func faultDial(t *testing.T, p *proc) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(procPatience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func faultSend(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// faultStatus reads a response and returns its body. It fails the test unless the response has the status.
func faultStatus(t *testing.T, conn net.Conn, want int) []byte {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		t.Fatalf("answer = %d %s (%v), want %d", resp.StatusCode, body, err, want)
	}
	return body
}

// faultDrip sends the beginning of a request and then one byte at a time. It fails the test unless the server closes
// the connection after the time limit for headers.
func faultDrip(t *testing.T, conn net.Conn, beginning string) {
	start := time.Now()
	rest := bytes.Repeat([]byte("x"), 1000)
	if strings.HasPrefix(beginning, "PRI") {
		rest = []byte("\r\nSM\r\n\r\n\x00") // the rest of the HTTP/2 preface, without a frame after it
	}
	_, err := io.WriteString(conn, beginning)
	for err == nil && time.Since(start) < procPatience {
		if len(rest) > 0 {
			_, err = conn.Write(rest[:1])
			rest = rest[1:]
		}
		if err == nil {
			// The read waits between two bytes, and detects that the connection is closed.
			_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err = conn.Read(make([]byte, 100)); errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			}
		}
	}
	if took := time.Since(start); took < faultHeaderTime/2 || took > faultHeaderTime+30*time.Second {
		t.Errorf("a client that sent %q and then single bytes was disconnected after %s (%v), want %s",
			beginning, took, err, faultHeaderTime)
	}
}

// TestFaultLimits sends requests at the limits of the server and beyond. Requests that exceed a limit must be
// refused.
func TestFaultLimits(t *testing.T) {
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir())
	small := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_MAX_BODY=1KiB")
	tests := map[string]struct {
		p            *proc
		header, body int
		status       int
	}{
		"headers that fit":         {p, faultHeaderBytes - 4<<10, 0, http.StatusOK},
		"headers that do not":      {p, faultHeaderBytes + 8<<10, 0, http.StatusRequestHeaderFieldsTooLarge},
		"a body that fits":         {p, 0, faultBodyBytes, http.StatusOK},
		"a body that does not":     {p, 0, faultBodyBytes + 1, http.StatusBadRequest},
		"much too large a body":    {p, 0, 8 * faultBodyBytes, http.StatusBadRequest},
		"a body the setting takes": {small, 0, 1 << 10, http.StatusOK},
		"a body it does not":       {small, 0, 1<<10 + 1, http.StatusBadRequest},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := faultPadded(t, tt.body)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				"http://"+tt.p.address+faultGroups(tt.p, http.MethodPost), bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+tt.p.dev.Token)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-Padding", strings.Repeat("x", tt.header))
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			// The server may send an incomplete answer if it did not read the whole request.
			text, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status {
				t.Fatalf("answer = %d %s, want %d", resp.StatusCode, text, tt.status)
			}
			if tt.status == http.StatusBadRequest && !strings.Contains(string(text), `"field":"body"`) {
				t.Errorf("answer = %s, want it to name the field", text)
			}
		})
	}
	faultMake(t, p)
}

// faultPadded returns a request body that creates a group, padded to size bytes.
func faultPadded(t *testing.T, size int) []byte {
	t.Helper()
	body, err := json.Marshal(faultBody(http.MethodPost))
	if err != nil {
		t.Fatal(err)
	}
	return append(body, bytes.Repeat([]byte(" "), max(0, size-len(body)))...)
}

// TestFaultDrain stops the server during a request. The server must finish the request, but wait no longer than the
// grace period.
func TestFaultDrain(t *testing.T) {
	t.Run("a request that ends", func(t *testing.T) {
		p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir())
		conn, body := faultHalf(t, p)
		p.signal()
		p.waitLog("shutting down")
		procUntil(t, "new connections are refused", func() bool {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.address)
			if err == nil {
				conn.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		p.alive()
		faultSend(t, conn, body)
		faultStatus(t, conn, http.StatusOK)
		p.waitEnd()
	})
	t.Run("a request that does not", func(t *testing.T) {
		const grace = time.Second
		p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_SHUTDOWN_GRACE="+grace.String())
		faultHalf(t, p)
		start := time.Now()
		p.stop()
		// The default grace period is 15 seconds, a second longer than this limit.
		if took := time.Since(start); took < grace || took > 14*time.Second {
			t.Errorf("ended after %s, want %s", took, grace)
		}
	})
}

// faultHalf sends the headers of a request. It returns the connection and the missing body when the server waits for
// the body.
func faultHalf(t *testing.T, p *proc) (conn net.Conn, body string) {
	t.Helper()
	body = string(faultPadded(t, 0))
	conn = faultDial(t, p)
	faultSend(t, conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: holdfast.test\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Expect: 100-continue\r\nConnection: close\r\n\r\n",
		faultGroups(p, http.MethodPost), p.dev.Token, len(body)))
	const interim = "HTTP/1.1 100 Continue\r\n\r\n"
	got := make([]byte, len(interim))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != interim {
		t.Fatalf("interim answer %q (%v), want %q", got, err, interim)
	}
	return conn, body
}
