package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// composeFile loads the compose file as `docker compose` does: unknown fields are errors.
func composeFile(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose/compose.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

var fixedTag = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+(\.\d+)+[a-z0-9.-]*$`)

// TestComposeHardens checks the security restrictions of every service. The service that
// prepares a volume runs as root, but without a network and with only one capability.
func TestComposeHardens(t *testing.T) {
	for name, s := range composeFile(t).Services {
		if !fixedTag.MatchString(s.Image) {
			t.Errorf("%s: image %s has no fixed tag", name, s.Image)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
			!slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: read_only %v, cap_drop %v, security_opt %v", name, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
		if name == "blobs-folder" {
			if s.NetworkMode != "none" || !slices.Equal(s.CapAdd, []string{"CHOWN"}) {
				t.Errorf("%s: network_mode %q, cap_add %v", name, s.NetworkMode, s.CapAdd)
			}
			continue
		}
		if s.User == "" || s.User == "root" || strings.HasPrefix(s.User, "0") || len(s.CapAdd) > 0 {
			t.Errorf("%s: user %q, cap_add %v", name, s.User, s.CapAdd)
		}
		if s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 {
			t.Errorf("%s has no health check", name)
		}
	}
}

// TestComposeSecrets checks that each secret is a file that make-secrets writes, and that
// no environment variable holds a secret.
func TestComposeSecrets(t *testing.T) {
	folder := makeSecrets(t)
	project := composeFile(t)
	for name, secret := range project.Secrets {
		if text := read(t, filepath.Join(folder, "secrets", filepath.Base(secret.File))); text == "" {
			t.Errorf("%s is empty", name)
		}
	}
	password := regexp.MustCompile(`(?i)://[^/@]*:[^/@]*@`)
	for name, s := range project.Services {
		for variable, value := range s.Environment {
			checkKnown(t, variable)
			secret := regexp.MustCompile(`(?i)password$|secret|encryption_key`).MatchString(variable)
			if secret || value == nil || password.MatchString(*value) {
				t.Errorf("%s: %s has a secret or no value", name, variable)
			}
		}
		for _, used := range s.Secrets {
			if _, ok := project.Secrets[used.Source]; !ok {
				t.Errorf("%s uses the secret %s, which is not defined", name, used.Source)
			}
		}
	}
	first := read(t, filepath.Join(folder, "secrets/encryption_key"))
	runIn(t, folder, "./make-secrets")
	if read(t, filepath.Join(folder, "secrets/encryption_key")) != first {
		t.Error("make-secrets replaced a key")
	}
}

// makeSecrets runs make-secrets in a copy of its folder, and returns the copy.
func makeSecrets(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	script := []byte(read(t, "compose/make-secrets"))
	if err := os.WriteFile(filepath.Join(folder, "make-secrets"), script, 0o700); err != nil {
		t.Fatal(err)
	}
	runIn(t, folder, "./make-secrets")
	return folder
}

func runIn(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", args[0], err, out)
	}
	return string(out)
}

// TestComposeServes runs holdfastd with the variables of the compose file, on
// SQLite, with the key mounted as docker mounts a secret: read-only, and readable
// by others. Then it runs the health check.
func TestComposeServes(t *testing.T) {
	mounts := []string{"unshare", "--user", "--map-root-user", "--mount"}
	if err := exec.CommandContext(t.Context(), mounts[0], append(mounts[1:], "true")...).Run(); err != nil {
		t.Skipf("no namespaces here: %v", err)
	}
	service := composeFile(t).Services["holdfast"]
	variables := map[string]string{}
	for name, value := range service.Environment {
		variables[name] = *value
	}
	instead := local(t)
	settings := environ(variables, instead)
	mounted := filepath.Join(instead["HOLDFAST_DATA_DIR"], "holdfast.key")
	if target := service.Secrets[slices.IndexFunc(service.Secrets, func(s types.ServiceSecretConfig) bool {
		return s.Source == "encryption_key"
	})].Target; target != filepath.Join(variables["HOLDFAST_DATA_DIR"], "holdfast.key") {
		t.Errorf("the key is mounted at %s", target)
	}
	const script = `touch "$2" && mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && exec "$3"`
	s := startCommand(t, settings, append(mounts, "sh", "-euc", script, "-",
		filepath.Join(makeSecrets(t), "secrets/encryption_key"), mounted, program(t, "holdfastd"))...)
	if status, body := s.get("http://" + s.address + "/readyz"); status != 200 {
		t.Errorf("/readyz: %d %s", status, body)
	}
	check := service.HealthCheck.Test
	if check[0] != "CMD" || check[1] != "holdfastd" {
		t.Fatalf("the health check is %v, but the image has holdfastd alone", check)
	}
	cmd := exec.CommandContext(t.Context(), program(t, check[1]), check[2:]...)
	cmd.Env = settings
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("health check: %v\n%s", err, out)
	}
}
