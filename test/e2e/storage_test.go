package e2e_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// TestStoragePage runs the commands in docs/storage.md while a server runs: before a blob is damaged, after it is
// damaged, and after it has been pushed again.
func TestStoragePage(t *testing.T) {
	t.Parallel()
	blocks := shellBlock.FindAllStringSubmatch(readmeText(t, "docs/storage.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks of commands, want 2", len(blocks))
	}
	binary := testprogram.Holdfastd(t)
	dir := t.TempDir()
	p := procStart(t, "HOLDFAST_DATA_DIR="+dir)
	layer := []byte("a layer that is damaged")
	const digest = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	run := func(block int, wantCode int, want string) {
		t.Helper()
		line := strings.ReplaceAll(strings.TrimSpace(blocks[block][1]), digest, ociDigest(layer))
		command := exec.CommandContext(t.Context(), "sh", "-c", line)
		command.Env = []string{"PATH=" + filepath.Dir(binary) + ":/bin:/usr/bin", "HOLDFAST_DATA_DIR=" + dir}
		out, err := command.CombinedOutput()
		code := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code, err = exit.ExitCode(), nil
		}
		if err != nil || code != wantCode || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, exit code %d\n%s", line, err, code, out)
		}
	}
	push := func() {
		t.Helper()
		if err := p.registry().push(t.Context(), "dev/app", "v1", layer); err != nil {
			t.Fatal(err)
		}
	}
	head := func(status int) {
		t.Helper()
		if _, _, err := p.registry().expect(t.Context(), status, "HEAD", "/v2/dev/app/blobs/"+ociDigest(layer),
			nil); err != nil {
			t.Error(err)
		}
	}
	push()
	run(0, 0, "Read 2 blobs")
	run(1, 0, "sound")
	damageBlob(t, filepath.Join(dir, "blobs"), layer)
	head(http.StatusOK) // the damage has not been detected yet
	run(0, 1, ociDigest(layer)+"\nRead 2 blobs")
	run(1, 0, "rotten")
	head(http.StatusNotFound)
	p.waitLog("a blob is missing or wrong in the storage")
	p.stop()
	run(0, 1, ociDigest(layer)) // the command works without a server, too
	p = procStart(t, "HOLDFAST_DATA_DIR="+dir)
	push()
	head(http.StatusOK)
	run(0, 0, "0 are missing or wrong")
	if err := p.registry().pull(t.Context(), "dev/app", "v1"); err != nil {
		t.Error(err)
	}
}

// damageBlob changes a bit in the file that has this content.
func damageBlob(t *testing.T, folder string, content []byte) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(b, content) {
			return err
		}
		found++
		b[0] ^= 1
		return os.WriteFile(name, b, 0o600)
	})
	if err != nil || found != 1 {
		t.Fatalf("found %d files, %v", found, err)
	}
}

// TestBucketKilled kills a server while it receives a blob in parts. Some of the parts are already in the bucket. The
// client continues at the offset that the server reports, or starts again. After that it must be able to pull the
// blob.
func TestBucketKilled(t *testing.T) {
	t.Parallel()
	env := append(s3Start(t), "HOLDFAST_DATA_DIR="+t.TempDir())
	content := make([]byte, 20<<20)
	for i := range content {
		content[i] = byte(i * 7 >> 8)
	}
	p := procStart(t, env...)
	resp, _, err := p.registry().expect(t.Context(), 202, "POST", "/v2/dev/app/blobs/uploads/", nil)
	if err != nil {
		t.Fatal(err)
	}
	location := resp.Header.Get("Location")
	if _, _, err := p.registry().expect(t.Context(), 202, "PATCH", location, content[:6<<20]); err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://"+p.address+location, out)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.dev.RegistryToken)
	answered := make(chan error)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	if _, err := in.Write(content[6<<20 : 17<<20]); err != nil { // more bytes than a part has
		t.Fatal(err)
	}
	p.kill()
	in.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-answered; err == nil {
		t.Error("a killed server has responded")
	}
	p = procStart(t, env...)
	c := p.registry()
	resp, _, err = c.send(t.Context(), "PUT", location+"?digest="+ociDigest(content), content[6<<20:])
	if err != nil || resp.StatusCode != 201 && resp.StatusCode != 404 {
		t.Fatalf("continuing the upload: %v, %v", resp, err)
	}
	t.Logf("the client that continued got status %d", resp.StatusCode)
	if resp.StatusCode == 404 {
		if err := c.pushBlob(t.Context(), "dev/app", content); err != nil {
			t.Fatal(err)
		}
	}
	_, got, err := c.expect(t.Context(), 200, "GET", "/v2/dev/app/blobs/"+ociDigest(content), nil)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the pull returned %d bytes, %v", len(got), err)
	}
}
