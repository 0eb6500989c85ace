package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestUploadMoves starts an upload on a replica that then stops, and continues the upload on another replica. Both
// replicas use the same folder for blobs.
func TestUploadMoves(t *testing.T) {
	t.Parallel()
	database, key, blobs := storetest.Postgres(t), secret.NewKey(), t.TempDir()
	start := func() *proc {
		return procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+database,
			"HOLDFAST_ENCRYPTION_KEY="+key.Text(), "HOLDFAST_BLOBS="+blobs)
	}
	other := start()
	ways := map[string]func(*testing.T, *proc, string) (location string){
		"killed between requests":  func(_ *testing.T, p *proc, location string) string { p.kill(); return location },
		"stopped between requests": func(_ *testing.T, p *proc, location string) string { p.stop(); return location },
		"stopped during a request": uploadFinishes,
		"killed during a request": func(t *testing.T, p *proc, location string) string {
			return uploadAgain(t, p, other, location, blobs)
		},
	}
	for name, leave := range ways {
		t.Run(name, func(t *testing.T) {
			p := start()
			resp, _, err := p.registry().expect(t.Context(), 202, "POST", "/v2/dev/app/blobs/uploads/", nil)
			if err != nil {
				t.Fatal(err)
			}
			location := resp.Header.Get("Location")
			content := append(bytes.Clone(uploadParts), name...)
			if _, _, err := p.registry().expect(t.Context(), 202, "PATCH", location, content[:uploadPart]); err != nil {
				t.Fatal(err)
			}
			uploadRest(t, other, leave(t, p, location), content)
		})
	}
}

const uploadPart = 100_000 // size of one part of an upload, in bytes

var uploadParts = bytes.Repeat([]byte("x"), 3*uploadPart)

// uploadFinishes stops a server that has started to receive the second part of an upload, and then sends the rest of
// this part. The server must wait for it.
func uploadFinishes(t *testing.T, p *proc, location string) string {
	t.Helper()
	conn := uploadOpen(t, p, location)
	p.signal()
	p.waitLog("closing the port")
	faultSend(t, conn, string(uploadParts[:uploadPart/2]))
	faultStatus(t, conn, http.StatusAccepted)
	p.waitEnd()
	return location
}

// uploadAgain kills a server that has received half of the second part. Soon, another server must report that the
// upload is lost. Then uploadAgain starts a new upload and returns its location.
func uploadAgain(t *testing.T, p, other *proc, location, blobs string) string {
	t.Helper()
	uploadOpen(t, p, location)
	path := filepath.Join(blobs, "blobs", filepath.Base(location)[:2], filepath.Base(location))
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	p.kill()
	registry := other.registry()
	procUntil(t, "the upload is no longer held", func() bool {
		resp, text, err := registry.send(t.Context(), "PATCH", location, uploadParts[:uploadPart],
			"Content-Range", fmt.Sprintf("%d-%d", uploadPart, 2*uploadPart-1))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusConflict && resp.StatusCode != http.StatusNotFound {
			t.Fatalf("response = %d %s", resp.StatusCode, text)
		}
		return resp.StatusCode == http.StatusNotFound
	})
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the bytes of the lost upload: %v", err)
	}
	resp, _, err := registry.expect(t.Context(), 202, "POST", "/v2/dev/app/blobs/uploads/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Get("Location")
}

// uploadOpen starts to send the second part. It returns after half of the part has been sent.
func uploadOpen(t *testing.T, p *proc, location string) net.Conn {
	t.Helper()
	conn := faultDial(t, p)
	faultSend(t, conn, fmt.Sprintf("PATCH %s HTTP/1.1\r\nHost: holdfast.test\r\nAuthorization: Bearer %s\r\n"+
		"Content-Range: %d-%d\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		location, p.registry().token, uploadPart, 2*uploadPart-1, uploadPart))
	// The server sends this when it reads the body, so from then on it holds the upload.
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	got := make([]byte, len(goOn))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != goOn {
		t.Fatalf("%q (%v), want %q", got, err, goOn)
	}
	faultSend(t, conn, string(uploadParts[:uploadPart/2]))
	return conn
}

// uploadRest asks a server for the size of an upload, sends the rest, and checks that the blob can be read.
func uploadRest(t *testing.T, p *proc, location string, content []byte) {
	t.Helper()
	registry := p.registry()
	resp, _, err := registry.expect(t.Context(), 204, "GET", location, nil)
	if err != nil {
		t.Fatal(err)
	}
	var last int
	if _, err := fmt.Sscanf(resp.Header.Get("Range"), "0-%d", &last); err != nil {
		t.Fatal(err)
	}
	have := last + 1
	if last == 0 {
		have = 0
	}
	_, _, err = registry.expect(t.Context(), 202, "PATCH", location, content[have:],
		"Content-Range", fmt.Sprintf("%d-%d", have, len(content)-1))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := registry.expect(t.Context(), 201, "PUT", location+"?digest="+ociDigest(content), nil); err != nil {
		t.Fatal(err)
	}
	_, got, err := registry.expect(t.Context(), 200, "GET", "/v2/dev/app/blobs/"+ociDigest(content), nil)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the pull returned %d bytes, %v", len(got), err)
	}
}
