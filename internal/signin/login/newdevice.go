package login

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	deviceCookie = "hf_device"
	sealedDevice = "device"
	maxPeople    = 8 // that a browser remembers
)

// peopleOf returns digests of the people who have signed in with the browser of a
// request, the latest first. The cookie gives no access: it only says for whom
// the browser is not a new device.
func (s *Service) peopleOf(r *http.Request) (all []string) {
	if b, ok := s.site.OpenCookie(r, deviceCookie, sealedDevice); !ok || json.Unmarshal(b, &all) != nil {
		return nil
	}
	return all
}

func personDigest(identity resource.UID) string {
	return base64.RawURLEncoding.EncodeToString(signindb.Digest("device " + string(identity))[:12])
}

// rememberDevice records in a browser that somebody has signed in with it. Without
// mail nobody asks for that.
func (s *Service) rememberDevice(w http.ResponseWriter, r *http.Request, identity resource.UID) {
	if s.cfg.Mail == nil {
		return
	}
	me := personDigest(identity)
	all := append([]string{me}, slices.DeleteFunc(s.peopleOf(r), func(p string) bool { return p == me })...)
	b, err := json.Marshal(all[:min(len(all), maxPeople)])
	if err != nil {
		return // impossible, and the cookie is optional
	}
	http.SetCookie(w, s.site.SealedCookie(deviceCookie, sealedDevice, b, knownLife))
}

// mailNewDevice returns what adds the message to the transaction of a sign-in that
// tells a person of it, if they have not used the browser before. It is for the
// address of their account, or the one that their provider has verified. Somebody
// who has just been registered is not told.
func (s *Service) mailNewDevice(
	r *http.Request, f *flow, arrival resource.SignIn, n resource.Session, landing resource.SignInResult,
) ([]func(*store.Tx) error, error) {
	to := landing.Identity.Email
	if arrival.Voucher == "" {
		to = arrival.Email
	}
	if s.cfg.Mail == nil || landing.New || f.Method == resource.BySetUp || to == "" || n.Home == "" ||
		slices.Contains(s.peopleOf(r), personDigest(n.Identity)) {
		return nil, nil
	}
	org, err := s.admin.OrganizationName(r.Context(), n.Home)
	if err != nil {
		return nil, err
	}
	return s.cfg.Mail.With(r.Context(), func() mail.Message {
		return s.cfg.Mail.NewDevice(n.Home.Root(), to, org, input.Program(n.Agent), n.Address, n.CreateTime)
	}), nil
}
