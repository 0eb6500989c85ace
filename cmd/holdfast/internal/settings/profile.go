package settings

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// A profile is another set of settings and sessions, for another server or another
// account. It is a folder with a settings file, in the folder profiles next to the
// default settings. The file called profile contains the name of the current profile,
// which the flag and the variable override.

// DefaultProfile is the name of the settings outside of any profile.
const DefaultProfile = "default"

// ProfileVariable is the environment variable that selects a profile.
const ProfileVariable = "HOLDFAST_PROFILE"

var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func profilePath(base, name string) string {
	return filepath.Join(filepath.Dir(base), "profiles", name, "config.yaml")
}

// Profile returns the name of the current profile.
func Profile() (string, error) {
	base, err := basePath()
	if err != nil {
		return "", err
	}
	name := os.Getenv(ProfileVariable)
	if name == "" {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(base), "profile"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", problem.Usage("profile: %v", err)
		}
		name = strings.TrimSpace(string(text))
	}
	name = cmp.Or(name, DefaultProfile)
	if !profileName.MatchString(name) {
		return "", problem.Usage("%q is not the name of a profile", name).Hint("use letters, digits, dots and dashes")
	}
	return name, nil
}

// Profiles returns the names of all profiles, starting with the default one.
func Profiles() ([]string, error) {
	base, err := basePath()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(filepath.Dir(base), "profiles"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, problem.Usage("profiles: %v", err)
	}
	names := []string{DefaultProfile}
	for _, e := range entries {
		if e.IsDir() && profileName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// RequireProfile returns a problem if the current profile does not exist.
func RequireProfile() error {
	name, err := Profile()
	if err != nil {
		return err
	}
	names, err := Profiles()
	if err != nil || slices.Contains(names, name) {
		return err
	}
	return problem.Usage("there is no profile %q", name).Hint("the profiles are "+strings.Join(names, ", "),
		"to create it: holdfast --profile "+name+" config set api https://holdfast.example.com")
}

// UseProfile makes a profile the current one.
func UseProfile(name string) error {
	base, err := basePath()
	if err != nil {
		return err
	}
	return WritePrivate(filepath.Join(filepath.Dir(base), "profile"), []byte(name+"\n"))
}

// ProfileSettings returns the settings in the file of a profile.
func ProfileSettings(name string) (map[string]string, error) {
	base, err := basePath()
	if err != nil {
		return nil, err
	}
	if name == DefaultProfile {
		return readSettings(base)
	}
	return readSettings(profilePath(base, name))
}
