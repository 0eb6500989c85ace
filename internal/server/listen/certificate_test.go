package listen

import (
	"bytes"
	"log/slog"
	"os"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server/listen/listentest"
)

func TestCertificateIsReadAgain(t *testing.T) {
	cert, key, _ := listentest.Files(t)
	c := &Certificate{certFile: cert, keyFile: key, log: slog.New(slog.DiscardHandler)}
	first, err := c.get(nil)
	if err != nil || first == nil {
		t.Fatalf("certificate = %v, %v", first, err)
	}
	if err := os.WriteFile(cert, []byte("half a renewal"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, _ := c.get(nil); again != first {
		t.Error("a certificate that cannot be read replaced the old one")
	}
	listentest.WritePair(t, cert, key, listentest.NewPair(t))
	renewed, err := c.get(nil)
	if err != nil || bytes.Equal(renewed.Certificate[0], first.Certificate[0]) {
		t.Errorf("the renewed certificate is not used: %v", err)
	}
}
