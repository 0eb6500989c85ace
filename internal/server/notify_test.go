package server_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
)

// TestNotify: the service manager gets a message when the server starts to serve and
// when it stops.
func TestNotify(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	s, err := server.New(t.Context(),
		server.Config{Listen: "127.0.0.1:0", DataDir: t.TempDir(), Stdout: t.Output(), Stderr: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		b := make([]byte, 100)
		n, err := manager.Read(b)
		if err != nil || string(b[:n]) != want {
			t.Fatalf("the manager is told %q, %v, want %q", b[:n], err, want)
		}
		stop()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestBlobsNowhere: the server does not start if it cannot store blobs. Not even root can
// create a folder in /proc.
func TestBlobsNowhere(t *testing.T) {
	_, err := server.New(t.Context(), server.Config{
		Listen: "127.0.0.1:0", DataDir: t.TempDir(), Blobs: "/proc/holdfast", Stdout: t.Output(), Stderr: t.Output(),
	})
	if err == nil || !strings.Contains(err.Error(), "folder of blobs") {
		t.Errorf("the server starts with %v", err)
	}
}
