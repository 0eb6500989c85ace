package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/registry/signature/signaturetest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

const (
	dockerType       = "application/vnd.docker.distribution.manifest.v2+json"
	dockerConfigType = "application/vnd.docker.container.image.v1+json"
	dockerLayerType  = "application/vnd.docker.image.rootfs.diff.tar.gzip"
	plainLayerType   = "application/vnd.oci.image.layer.v1.tar"
	helmConfigType   = "application/vnd.cncf.helm.config.v1+json"
	helmLayerType    = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	exampleType      = "application/vnd.example.config+json"
	schema1Type      = "application/vnd.docker.distribution.manifest.v1+prettyjws"
	wasmConfigType   = "application/vnd.wasm.config.v0+json"
	wasmLayerType    = "application/wasm"
)

// A pushed is a manifest to push, with the blobs that it needs.
type pushed struct {
	contentType string
	content     map[string]any
	blobs       []string
}

// filesLayer returns an archive with one file.
func filesLayer(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	text := []byte("#!/bin/sh\necho evil\n")
	err := w.WriteHeader(&tar.Header{Name: "evil", Mode: 0o755, Size: int64(len(text))})
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// imageOf returns a manifest of an image with these media types. Its configuration and its layer have the
// content of a real image.
func imageOf(t *testing.T, manifest, config, layer string) pushed {
	t.Helper()
	files := filesLayer(t)
	text := fmt.Sprintf(`{"architecture":"amd64","os":"linux","config":{"Cmd":["/evil"]},`+
		`"rootfs":{"type":"layers","diff_ids":[%q]}}`, digestOf(files))
	return pushed{manifest, map[string]any{
		"schemaVersion": 2, "mediaType": manifest, "config": describe(config, text),
		"layers": []descriptor{describe(layer, files)},
	}, []string{files, text}}
}

// with returns a manifest with a changed field.
func (p pushed) with(field string, value any, blobs ...string) pushed {
	content := maps.Clone(p.content)
	if content[field] = value; value == nil {
		delete(content, field)
	}
	return pushed{p.contentType, content, append(blobs, p.blobs...)}
}

// disguises returns manifests that look like artifacts, but that some client runs as an image.
func disguises(t *testing.T) map[string]pushed {
	t.Helper()
	image := imageOf(t, manifestType, configType, plainLayerType)
	files, config := image.blobs[0], image.blobs[1]
	layer, shouting := describe(plainLayerType, files), strings.Replace(config, "rootfs", "RootFS", 1)
	untyped := image.with("mediaType", nil)
	untyped.contentType = dockerType
	history, err := json.Marshal(map[string]any{
		"id": digestOf("1")[7:], "architecture": "amd64", "os": "linux", "config": map[string]any{"Cmd": []string{"/evil"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]pushed{
		"docker with an unusual configuration":       imageOf(t, dockerType, exampleType, dockerLayerType),
		"docker without a type of the configuration": imageOf(t, dockerType, "", dockerLayerType),
		"docker with octets":                         imageOf(t, dockerType, "application/octet-stream", dockerLayerType),
		"docker as a chart":                          imageOf(t, dockerType, helmConfigType, helmLayerType),
		"docker as an empty artifact":                imageOf(t, dockerType, emptyType, "application/spdx+json"),
		"docker with layers of octets":               imageOf(t, dockerType, dockerConfigType, "application/octet-stream"),
		"docker with layers without a type":          imageOf(t, dockerType, dockerConfigType, ""),
		"docker in the header only":                  untyped.with("config", describe(exampleType, config)),
		"an unusual configuration":                   imageOf(t, manifestType, exampleType, plainLayerType),
		"a configuration without a type":             imageOf(t, manifestType, "", plainLayerType),
		"a configuration of octets":                  imageOf(t, manifestType, "application/octet-stream", plainLayerType),
		"layers of octets":                           imageOf(t, manifestType, configType, "application/octet-stream"),
		"layers without a type":                      imageOf(t, manifestType, configType, ""),
		"layers of documents":                        imageOf(t, manifestType, configType, "text/spdx"),
		"a chart with the layers of an image":        imageOf(t, manifestType, helmConfigType, plainLayerType),
		"a chart with a layer too many": imageOf(t, manifestType, helmConfigType, helmLayerType).with("layers",
			[]descriptor{describe(helmLayerType, files), layer}),
		"an empty artifact that is not empty": imageOf(t, manifestType, emptyType, plainLayerType),
		"an artifact type":                    image.with("artifactType", "application/spdx+json"),
		"a subject":                           image.with("subject", descriptor{manifestType, digestOf("x"), 1, nil}),
		"a configuration among the layers": image.with("config", describe(emptyType, "{}"), "{}").
			with("layers", []descriptor{describe(configType, config), layer}),
		"the configuration also among the layers": image.with("config", describe(helmConfigType, config)).
			with("layers", []descriptor{describe(dockerConfigType, config), layer}),
		// containerd runs these if it has unpacked the layers that the configuration names.
		"a chart with the configuration of an image": image.with("config", describe(helmConfigType, config)).
			with("layers", []descriptor{describe("text/plain", files)}),
		"an artifact with the configuration of an image": image.with("config",
			describe("application/vnd.unknown.config.v1+json", shouting), shouting).with("layers", []descriptor{}),
		"a document with the configuration of an image": image.with("layers",
			[]descriptor{describe(payloadType, "{}")}, "{}"),
		"the configuration of an image": image.with("layers", []descriptor{}),
		"WebAssembly":                   imageOf(t, manifestType, wasmConfigType, wasmLayerType),
		"no configuration":              image.with("config", nil),
		"schema 1": {schema1Type, map[string]any{
			"name": "dev/app", "tag": "x", "architecture": "amd64",
			"fsLayers": []any{map[string]any{"blobSum": digestOf(files)}},
			"history":  []any{map[string]any{"v1Compatibility": string(history)}},
			"signatures": []any{map[string]any{
				"header": map[string]any{"alg": "none"}, "signature": "",
				"protected": base64.RawURLEncoding.EncodeToString([]byte(`{"formatLength":0,"formatTail":"e30"}`)),
			}},
		}, []string{files}},
	}
}

// artifacts returns manifests that no client runs.
func artifacts(t *testing.T) map[string]pushed {
	t.Helper()
	artifact := func(config, text string, layers ...string) pushed {
		p := pushed{manifestType, map[string]any{"schemaVersion": 2, "mediaType": manifestType}, []string{text}}
		var all []descriptor
		for i, mediaType := range layers {
			blob := fmt.Sprintf(`{"document":%d}`, i)
			p.blobs, all = append(p.blobs, blob), append(all, describe(mediaType, blob))
		}
		p.content["config"], p.content["layers"] = describe(config, text), all
		return p
	}
	return map[string]pushed{
		"a chart": artifact(helmConfigType, `{"name":"c"}`, helmLayerType,
			"application/vnd.cncf.helm.chart.provenance.v1.prov"),
		"a signature of cosign": artifact(configType, `{"architecture":"","os":"","rootfs":{"type":"layers","diff_ids":["`+
			digestOf(`{"document":0}`)+`"]}}`, payloadType),
		"a signature of notation": artifact("application/vnd.cncf.notary.signature", "{}", "application/jose+json"),
		"an SBOM": artifact(emptyType, "{}", "application/spdx+json").
			with("artifactType", "application/spdx+json"),
		"files of oras": artifact(emptyType, "{}", "text/markdown").
			with("artifactType", "application/vnd.acme.rocket"),
		"files of an old oras": artifact("application/vnd.unknown.config.v1+json", "{}", "text/markdown"),
		"an artifact manifest": {"application/vnd.oci.artifact.manifest.v1+json", map[string]any{
			"mediaType": "application/vnd.oci.artifact.manifest.v1+json", "artifactType": "application/spdx+json",
			"blobs": []descriptor{describe("application/spdx+json", "{}")},
		}, []string{"{}"}},
	}
}

// push pushes a manifest with its blobs.
func (w *world) push(t *testing.T, repo, tag string, p pushed) string {
	t.Helper()
	for _, blob := range p.blobs {
		w.put(t, "POST", repo+"/blobs/uploads/?digest="+digestOf(blob), "application/octet-stream", blob)
	}
	return w.pushManifest(t, repo, tag, p.contentType, p.content)
}

// pullsOf returns a function that checks the status of pulls from a repo by its owner.
func (w *world) pullsOf(t *testing.T, repo string) func(name, reference string, status int) {
	t.Helper()
	bearer := w.mint(t, w.Owner, token.Claims{Audience: []string{w.RegistryHost}})
	return func(name, reference string, status int) {
		t.Helper()
		got := w.oci(t, bearer, "GET", "/v2/"+repo+"/manifests/"+reference, "")
		if got.status != status {
			t.Errorf("%s, %s: status %d %.200s, want %d", repo, name, got.status, got.body, status)
		}
	}
}

// settled waits until the inspection of a manifest has ended. A manifest that is not an image is not inspected.
func (w *world) settled(t *testing.T, repo, digest string) {
	t.Helper()
	procUntil(t, digest+" is inspected", func() bool {
		return must[*findingspb.Inspection](t, w.overGRPC, w.Token, &findingspb.GetInspectionRequest{
			RepoUid: repo, Reference: digest,
		}).GetState() != findingspb.Inspection_STATE_WAITING
	})
}

// embeds pushes an index that contains the bytes of a disguised image. Clients that find the bytes there do not
// request the manifest.
func (w *world) embeds(t *testing.T, repo string) string {
	t.Helper()
	p := imageOf(t, dockerType, exampleType, dockerLayerType)
	digest := w.push(t, repo, "x", p)
	text := ok[[]byte](t)(json.Marshal(p.content))
	return w.pushManifest(t, repo, "embeds", indexType, map[string]any{
		"schemaVersion": 2, "mediaType": indexType, "manifests": []any{map[string]any{
			"mediaType": dockerType, "digest": digest, "size": len(text), "data": text,
			"platform": map[string]string{"architecture": "amd64", "os": "linux"},
		}},
	})
}

// TestAttackDisguisedImages pushes images that look like artifacts. Rules about signatures and about unknown packages
// must refuse them by tag and by digest. They must not refuse artifacts that no client runs, nor an unusual image that
// a signer has signed.
func TestAttackDisguisedImages(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		h := newHierarchy(t, serve(t, url, server.Config{InspectWorkers: 1}, nil))
		key := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
		h.signer(t, h.org, &ocipb.Signer{Name: "release", Key: key.PEM()})
		for folder, rule := range map[string]*findingspb.Rule{
			"signed": {Unsigned: true}, "known": {RefuseUnknown: true},
		} {
			rule.TargetUid = h.child(t, h.org, folder)
			rule.Mode = findingspb.RuleMode_RULE_MODE_ENFORCE
			h.ruled(t, h.org, rule)
			uid, repo := h.repo(t, rule.GetTargetUid(), "app"), "dev/"+folder+"/app"
			want := h.pullsOf(t, repo)
			for name, p := range disguises(t) {
				digest := h.push(t, repo, "x", p)
				h.settled(t, uid, digest)
				want(name, "x", http.StatusForbidden)
				want(name+", by digest", digest, http.StatusForbidden)
			}
			for name, p := range artifacts(t) {
				digest := h.push(t, repo, "x", p)
				h.settled(t, uid, digest)
				want(name, "x", http.StatusOK)
				want(name+", by digest", digest, http.StatusOK)
			}
			index := h.embeds(t, repo)
			want("an index that contains an image", "embeds", http.StatusForbidden)
			want("an index that contains an image, by digest", index, http.StatusForbidden)
			h.pushIndex(t, repo, "index", "amd64")
			want("an index", "index", http.StatusOK)
		}
		signed := h.push(t, "dev/signed/app", "signed", imageOf(t, dockerType, exampleType, dockerLayerType))
		h.signedWith(t, key, "dev/signed/app", signed)
		h.pullsOf(t, "dev/signed/app")("an unusual image that is signed", "signed", http.StatusOK)
	})
}

// shortDir returns a folder with a short path. podman limits the length of its paths, and the system
// limits the paths of sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := ok[string](t)(os.MkdirTemp("", "hf"))
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the container may have left files of other users
	return dir
}

// podman returns a tool that runs podman with its own storage.
func podman(t *testing.T) tool {
	t.Helper()
	home := shortDir(t)
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte("{}"), 0o600); err != nil { // its logins
		t.Fatal(err)
	}
	return tool{t, testprogram.Installed(t, "podman"), home}
}

// containerd starts a containerd with its own folders, and returns a tool that runs its client ctr and the address for
// the client.
func containerd(t *testing.T) (ctr tool, address string) {
	t.Helper()
	ctr = tool{t, testprogram.Installed(t, "ctr"), shortDir(t)}
	address = filepath.Join(ctr.home, "sock")
	config := filepath.Join(ctr.home, "config.toml")
	if err := os.WriteFile(config, []byte("version = 2\n"+
		`disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.aufs", `+
		`"io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The cleanup ends the process, so the command must not end with the test's context.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), testprogram.Installed(t, "containerd"),
		"--config", config, "--root", filepath.Join(ctr.home, "root"), "--state", filepath.Join(ctr.home, "state"),
		"--address", address)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("containerd: %s", log.String())
		}
	})
	procUntil(t, "containerd answers", func() bool {
		_, err := ctr.run("--address", address, "version")
		return err == nil
	})
	return ctr, address
}

// pullers returns functions that pull an image into the storage of a client, by the name of the client. skopeo copies
// the manifest without a look at its types.
func pullers(t *testing.T, host, token string) map[string]func(image string) (string, error) {
	t.Helper()
	p, s := podman(t), skopeo(t)
	c, address := containerd(t)
	copied := 0
	return map[string]func(image string) (string, error){
		"podman": func(image string) (string, error) {
			storage := []string{"--root", filepath.Join(p.home, "root"), "--runroot", filepath.Join(p.home, "run"),
				"--storage-driver", "vfs", "--events-backend", "none"}
			out, err := p.run(append(storage, "pull", "--tls-verify=false", "--creds", "_token:"+token, host+"/"+image)...)
			if err == nil { // podman refuses an image with other layers while it has one with the same configuration
				_, err = p.run(append(storage, "rmi", "--force", host+"/"+image)...)
			}
			return out, err
		},
		"containerd": func(image string) (string, error) {
			return c.run("--address", address, "images", "pull", "--plain-http", "--user", "_token:"+token,
				"--snapshotter", "native", host+"/"+image)
		},
		"skopeo": func(image string) (string, error) {
			copied++
			return s.run("copy", "--src-tls-verify=false", "--src-creds", "_token:"+token, "docker://"+host+"/"+image,
				"dir:"+filepath.Join(s.home, fmt.Sprint("copy", copied)))
		},
	}
}

// TestAttackDisguisedImagesOfClients pulls disguised images with real clients. With a rule about signatures, no client
// must pull any of them, and all must pull an image that a signer has signed. Without a rule, each client pulls some of
// them, which shows why the rules cannot trust media types.
func TestAttackDisguisedImagesOfClients(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can unpack images with podman and containerd")
	}
	p := ociServe(t)
	r, owner, org := p.registry(), p.owner(), string(p.dev.Organization)
	push := func(repo, tag string, m pushed) string {
		t.Helper()
		for _, blob := range m.blobs {
			if err := r.pushBlob(t.Context(), repo, []byte(blob)); err != nil {
				t.Fatal(err)
			}
		}
		text := ok[[]byte](t)(json.Marshal(m.content))
		if _, _, err := r.expect(t.Context(), http.StatusCreated, "PUT", "/v2/"+repo+"/manifests/"+tag, text,
			"Content-Type", m.contentType); err != nil {
			t.Fatal(err)
		}
		return digestOf(string(text))
	}
	type object = map[string]any
	for _, folder := range []string{"open", "signed"} {
		group := procMust[struct{ UID string }](t, owner, http.MethodPost, "/iam/v2beta1/groups/"+org,
			object{"name": folder})
		if folder == "signed" {
			procMust[any](t, owner, http.MethodPost, "/findings/v1/rules/"+org,
				object{"unsigned": true, "mode": "RULE_MODE_ENFORCE", "targetUid": group.UID})
		}
	}
	key := ok[signaturetest.Key](t)(signaturetest.NewKey("ecdsa"))
	procMust[any](t, owner, http.MethodPost, "/oci/v1/signers/"+org, object{"name": "release", "key": key.PEM()})
	good := push("dev/signed/app", "good", imageOf(t, manifestType, configType, plainLayerType))
	payload := signaturetest.Payload("host/app", good)
	push("dev/signed/app", signTag(good), pushed{manifestType, object{
		"schemaVersion": 2, "mediaType": manifestType, "config": describe(configType, "{}"),
		"layers": []any{object{
			"mediaType": payloadType, "digest": digestOf(string(payload)), "size": len(payload),
			"annotations": ok[map[string]string](t)(key.Cosign(payload)),
		}},
	}, []string{"{}", string(payload)}})
	all, pulled := pullers(t, p.address, r.token), map[string][]string{}
	for name, m := range disguises(t) {
		tag := strings.ReplaceAll(strings.ToLower(name), " ", "-")
		for _, folder := range []string{"open", "signed"} {
			push("dev/"+folder+"/app", tag, m)
		}
		for client, pull := range all {
			// containerd does not request a manifest that it has, so the pull that must fail is the first.
			if out, err := pull("dev/signed/app:" + tag); err == nil {
				t.Errorf("%s pulls %q despite the rule:\n%s", client, name, out)
			}
			if _, err := pull("dev/open/app:" + tag); err == nil {
				pulled[client] = append(pulled[client], name)
			}
		}
	}
	for client, pull := range all {
		slices.Sort(pulled[client])
		t.Logf("without a rule, %s pulls: %s", client, strings.Join(pulled[client], "; "))
		if len(pulled[client]) == 0 {
			t.Errorf("%s pulls nothing", client)
		}
		if out, err := pull("dev/signed/app:good"); err != nil {
			t.Errorf("%s does not pull the signed image: %v\n%s", client, err, out)
		}
	}
}

// TestAttackDisguisedImagesOfUpstreams pulls artifacts through an upstream. The server does not have their
// configurations yet, so it fetches them to find out that an artifact has the configuration of an image. It does not do
// that for anonymous callers.
func TestAttackDisguisedImagesOfUpstreams(t *testing.T) {
	t.Parallel()
	far := serve(t, storetest.SQLite(t), server.Config{}, nil)
	images := far.child(t, string(far.Organization), "images")
	public := func(w *world, group string) {
		t.Helper()
		if r := w.send(t, w.Token, http.MethodPatch, "/oci/v1/settings/"+group, `{"public": true}`); r.status != 200 {
			t.Fatal(r.body)
		}
	}
	public(far, images)
	const hostile = "a chart with the configuration of an image"
	far.push(t, "dev/images/app", "evil", disguises(t)[hostile])
	far.push(t, "dev/images/app", "chart", artifacts(t)["a chart"])
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		group := h.child(t, h.org, "mirror")
		must[*ocipb.Upstream](t, w.overGRPC, w.Token, &ocipb.CreateUpstreamRequest{
			Parent: group, Upstream: &ocipb.Upstream{Name: "far", Address: far.BaseURL},
		})
		public(w, group)
		h.ruled(t, h.org, &findingspb.Rule{
			TargetUid: group, RefuseUnknown: true, Mode: findingspb.RuleMode_RULE_MODE_ENFORCE,
		})
		want := h.pullsOf(t, "dev/mirror/dev/images/app")
		for range 2 { // the second pull finds the manifest here
			want(hostile, "evil", http.StatusForbidden)
			want("a chart", "chart", http.StatusOK)
		}
		refused := w.send(t, w.RegistryToken, "GET", "/v2/dev/mirror/dev/images/app/manifests/evil", "")
		if !strings.Contains(refused.body, "the packages of the image are not known") {
			t.Errorf("%s: %s", hostile, refused.body)
		}
		for reference, status := range map[string]int{"evil": http.StatusForbidden, "chart": http.StatusOK} {
			got := w.oci(t, "", "GET", "/v2/dev/mirror/dev/images/app/manifests/"+reference, "")
			if got.status != status {
				t.Errorf("%s without a token: status %d %.200s, want %d", reference, got.status, got.body, status)
			}
		}
	})
}
