package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/blob/blobtest"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// An ociClient pushes to and pulls from a registry.
type ociClient struct {
	address, token string
	http           *http.Client
}

// registry returns a client with the token of the organization's owner.
func (p *proc) registry() *ociClient {
	p.t.Helper()
	for _, line := range p.cmd.Env {
		dir, ok := strings.CutPrefix(line, "HOLDFAST_DATA_DIR=")
		if !ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, "dev.json"))
		if err != nil {
			p.t.Fatal(err)
		}
		var dev struct{ RegistryToken string }
		if err := json.Unmarshal(text, &dev); err != nil {
			p.t.Fatal(err)
		}
		return &ociClient{p.address, dev.RegistryToken, &http.Client{Timeout: procPatience}}
	}
	p.t.Fatal("the process has no data folder")
	return nil
}

// send makes a request. An error means that there was no complete response.
func (c *ociClient) send(
	ctx context.Context, method, path string, body []byte, headers ...string,
) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, text, err
}

// expect is like send, but returns an error if the response has another status.
func (c *ociClient) expect(
	ctx context.Context, status int, method, path string, body []byte, headers ...string,
) (*http.Response, []byte, error) {
	resp, text, err := c.send(ctx, method, path, body, headers...)
	if err == nil && resp.StatusCode != status {
		err = fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return resp, text, err
}

func ociDigest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// pushBlob pushes a blob in two chunks, so that a crash can happen between them.
func (c *ociClient) pushBlob(ctx context.Context, repo string, content []byte) error {
	resp, _, err := c.expect(ctx, 202, "POST", "/v2/"+repo+"/blobs/uploads/", nil)
	if err != nil {
		return err
	}
	half := len(content) / 2
	resp, _, err = c.expect(ctx, 202, "PATCH", resp.Header.Get("Location"), content[:half])
	if err != nil {
		return err
	}
	_, _, err = c.expect(ctx, 201, "PUT", resp.Header.Get("Location")+"?digest="+ociDigest(content), content[half:])
	return err
}

// push pushes an image of one layer under a tag.
func (c *ociClient) push(ctx context.Context, repo, tag string, layer []byte) error {
	config := []byte(`{"os":"linux","architecture":"amd64"}`)
	for _, b := range [][]byte{config, layer} {
		if err := c.pushBlob(ctx, repo, b); err != nil {
			return err
		}
	}
	describe := func(b []byte) string {
		return fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, ociDigest(b), len(b))
	}
	m := fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s]}`, describe(config), describe(layer))
	_, _, err := c.expect(ctx, 201, "PUT", "/v2/"+repo+"/manifests/"+tag, []byte(m), "Content-Type",
		"application/vnd.oci.image.manifest.v1+json")
	return err
}

// pull reads an image and checks every byte.
func (c *ociClient) pull(ctx context.Context, repo, tag string) error {
	_, m, err := c.expect(ctx, 200, "GET", "/v2/"+repo+"/manifests/"+tag, nil)
	if err != nil {
		return err
	}
	var doc struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if err := json.Unmarshal(m, &doc); err != nil {
		return err
	}
	for _, d := range append(doc.Layers, doc.Config) {
		_, b, err := c.expect(ctx, 200, "GET", "/v2/"+repo+"/blobs/"+d.Digest, nil)
		if err != nil {
			return err
		}
		if ociDigest(b) != d.Digest {
			return fmt.Errorf("%s:%s: the content of %s is wrong", repo, tag, d.Digest)
		}
	}
	return nil
}

// tags returns the tags in a repo. It returns none for a repo that does not exist.
func (c *ociClient) tags(ctx context.Context, repo string) ([]string, error) {
	resp, text, err := c.send(ctx, "GET", "/v2/"+repo+"/tags/list", nil)
	if err != nil || resp.StatusCode == http.StatusNotFound {
		return nil, err
	}
	var got struct{ Tags []string }
	return got.Tags, json.Unmarshal(text, &got)
}

// TestRegistryCrash kills the server repeatedly during pushes. Afterwards every tag must refer to a complete image,
// every acknowledged push must be stored, and the garbage collector must keep exactly the referenced content.
// HOLDFAST_TEST_KILLS is the number of kills.
func TestRegistryCrash(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		kills := testkit.Rounds(6, 12)
		if strings.Contains(url, "://") {
			kills = testkit.Rounds(3, 4)
		}
		if n, err := strconv.Atoi(os.Getenv("HOLDFAST_TEST_KILLS")); err == nil {
			kills = n
		}
		dir := t.TempDir()
		env := []string{
			"HOLDFAST_DATA_DIR=" + dir, "HOLDFAST_DATABASE=" + url, "HOLDFAST_GC_INTERVAL=20ms", "HOLDFAST_GC_GRACE=2s",
		}
		acked := map[string]bool{} // keys have the form repo:tag
		for round := range kills {
			p := procStart(t, env...)
			ociLoad(t, p, round, acked)
		}
		p := procStart(t, env...)
		pushed := len(acked)
		n := ociSurvey(t, p, acked)
		p.stop()
		t.Logf("%d kills, %d acknowledged pushes, %d complete images", kills, pushed, n)
		ociCollected(t, dir, url, n)
	})
}

// ociPushers is the number of clients that push concurrently. Every second client pushes to a shared repo. The other
// clients have a repo of their own.
const ociPushers = 4

func ociRepo(pusher int) string {
	if pusher%2 == 0 {
		return "dev/shared"
	}
	return fmt.Sprintf("dev/own%d", pusher)
}

// ociLoad pushes images until the server is killed, and records the acknowledged pushes.
func ociLoad(t *testing.T, p *proc, round int, acked map[string]bool) {
	t.Helper()
	var mu sync.Mutex
	var pushing sync.WaitGroup
	pushed := make(chan struct{}, 1000)
	for i := range ociPushers {
		pushing.Go(func() {
			c := p.registry()
			for n := 0; ; n++ {
				tag := fmt.Sprintf("r%d-p%d-n%d", round, i, n)
				layer := bytes.Repeat([]byte(tag), 2000+rand.IntN(20_000))
				if err := c.push(context.WithoutCancel(t.Context()), ociRepo(i), tag, layer); err != nil {
					return
				}
				mu.Lock()
				acked[ociRepo(i)+":"+tag] = true
				mu.Unlock()
				pushed <- struct{}{}
			}
		})
	}
	for range 1 + rand.IntN(12) {
		<-pushed
	}
	time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, func() { _ = p.cmd.Process.Kill() })
	<-p.ended
	p.killed = true
	pushing.Wait()
}

// ociSurvey pulls all images and returns their number. It fails the test if an acknowledged image is missing.
func ociSurvey(t *testing.T, p *proc, acked map[string]bool) (n int) {
	t.Helper()
	c := p.registry()
	for _, repo := range []string{"dev/shared", "dev/own1", "dev/own3"} {
		tags, err := c.tags(t.Context(), repo)
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range tags {
			if err := c.pull(t.Context(), repo, tag); err != nil {
				t.Error(err)
			}
			delete(acked, repo+":"+tag)
			n++
		}
	}
	for lost := range acked {
		t.Errorf("%s was acknowledged, but is lost", lost)
	}
	return n
}

// ociCollected runs the garbage collector, and checks the number of remaining blobs: one layer for each image, and
// the configuration that all images share.
func ociCollected(t *testing.T, dir, url string, images int) {
	t.Helper()
	binary := testprogram.Holdfastd(t)
	s := storetest.Open(t, url)
	stale, err := s.StaleUploads(t.Context(), "", time.Now().Add(time.Hour), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range stale { // the server would keep unfinished uploads for a day
		if err := s.DeleteUpload(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	procNoDrift(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	blobs := filepath.Join(dir, "blobs")
	yesterday := time.Now().Add(-48 * time.Hour)
	ociFiles(t, blobs, func(path string) {
		if err := os.Chtimes(path, yesterday, yesterday); err != nil {
			t.Fatal(err)
		}
	})
	for range 2 { // the first run marks unused blobs, the second run deletes them
		cmd := exec.CommandContext(t.Context(), binary, "gc", "--gc-grace", "1ns")
		cmd.Env = []string{"HOLDFAST_DATA_DIR=" + dir, "HOLDFAST_DATABASE=" + url}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("gc: %v\n%s", err, out)
		}
		t.Logf("gc took %s", bytes.TrimSpace(out))
	}
	if n := ociFiles(t, blobs, func(string) {}); n != images+1 {
		t.Errorf("%d files are left, want %d", n, images+1)
	}
}

// ociFiles calls f with the path of every file in dir, and returns the number of files.
func ociFiles(t *testing.T, dir string, f func(path string)) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
			f(path)
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return n
}

// s3Start runs an S3 server with one bucket called blobs, and returns the settings that store blobs in it.
func s3Start(t *testing.T) []string {
	t.Helper()
	s := blobtest.Start(t)
	return []string{
		"HOLDFAST_BLOBS=s3://" + s.Name + "/" + s.Prefix, "HOLDFAST_S3_ENDPOINT=" + s.Endpoint,
		"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
	}
}

// TestRegistryReplicas runs two servers with one database and one bucket. It checks that an upload that begins on one
// server can be finished on the other.
func TestRegistryReplicas(t *testing.T) {
	t.Parallel()
	database, key := storetest.Postgres(t), secret.NewKey()
	bucket := s3Start(t)
	start := func() *proc {
		return procStart(t,
			append(bucket, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+database,
				"HOLDFAST_ENCRYPTION_KEY="+key.Text())...)
	}
	first, second := start(), start()
	a, b := first.registry(), second.registry()
	ctx := t.Context()
	// The content is 16 MiB long, because a part of an S3 upload has at least 5 MiB.
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	resp, _, err := a.expect(ctx, 202, "POST", "/v2/dev/app/blobs/uploads/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []*ociClient{a, b} {
		chunk := content[i*6<<20 : (i+1)*6<<20]
		resp, _, err = c.expect(ctx, 202, "PATCH", resp.Header.Get("Location"), chunk, "Content-Range",
			fmt.Sprintf("%d-%d", i*6<<20, (i+1)*6<<20-1))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := a.expect(ctx, 201, "PUT", resp.Header.Get("Location")+"?digest="+ociDigest(content),
		content[12<<20:]); err != nil {
		t.Fatal(err)
	}
	_, got, err := b.expect(ctx, 200, "GET", "/v2/dev/app/blobs/"+ociDigest(content), nil)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("the pull returned %d bytes, %v", len(got), err)
	}
	_, got, err = b.expect(ctx, 206, "GET", "/v2/dev/app/blobs/"+ociDigest(content), nil, "Range", "bytes=-4")
	if err != nil || string(got) != "cdef" {
		t.Fatalf("Range = %q, %v", got, err)
	}
	if err := a.push(ctx, "dev/app", "v1", []byte("a layer")); err != nil {
		t.Fatal(err)
	}
	if err := b.pull(ctx, "dev/app", "v1"); err != nil {
		t.Fatal(err)
	}
	ociContend(t, a, b)
	first.stop()
	second.stop()
	ociRecorded(t, database)
}

// ociContend lets two servers write to the same upload concurrently, and checks that exactly one of them succeeds.
func ociContend(t *testing.T, a, b *ociClient) {
	t.Helper()
	for range 5 {
		resp, _, err := a.expect(t.Context(), 202, "POST", "/v2/dev/app/blobs/uploads/", nil)
		if err != nil {
			t.Fatal(err)
		}
		location, content := resp.Header.Get("Location"), []byte("contended")
		var wg sync.WaitGroup
		codes := make([]int, 2)
		for i, c := range []*ociClient{a, b} {
			wg.Go(func() {
				resp, _, err := c.send(t.Context(), "PATCH", location, content, "Content-Range", "0-8")
				if err == nil {
					codes[i] = resp.StatusCode
				}
			})
		}
		wg.Wait()
		accepted := 0
		for _, code := range codes {
			switch code {
			case 202:
				accepted++
			case 409, 416:
			default:
				t.Errorf("status = %d", code)
			}
		}
		if accepted != 1 {
			t.Fatalf("%d requests wrote the same bytes: %v", accepted, codes)
		}
		if _, _, err := b.expect(t.Context(), 201, "PUT", location+"?digest="+ociDigest(content), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// ociRecorded fails the test unless the database of the stopped servers contains a record of the push and of the
// pull.
func ociRecorded(t *testing.T, database string) {
	t.Helper()
	s := storetest.Open(t, database)
	org, err := s.Organization(t.Context(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Pulls(t.Context(), store.Reach{Under: []resource.UID{org.UID}}, resource.Filter{},
		page.Request{Size: 10, Order: page.Order{Field: "create_time"}})
	if err != nil || len(got.Items) != 2 || !got.Items[0].Push || got.Items[1].Push {
		t.Errorf("recorded: %+v, %v", got.Items, err)
	}
}
