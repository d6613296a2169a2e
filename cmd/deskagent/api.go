package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/deskagent/deskagent/sandbox/gateway"
)

// keyVariable is where the API key comes from, and the only place.
const keyVariable = "OPENAI_API_KEY"

// apiKey is the key of the environment.
func apiKey() (string, error) {
	key := os.Getenv(keyVariable)
	if key == "" {
		return "", hintError{usagef("%s is not set", keyVariable), "put your key into it; \"deskagent exercise\" needs none"}
	}
	return key, nil
}

// apiAddress is where the API is: base, or else $OPENAI_BASE_URL; empty for the address of OpenAI. The key is never sent in
// clear over a network.
func apiAddress(base string) (string, error) {
	if base == "" {
		base = os.Getenv("OPENAI_BASE_URL")
	}
	if base == "" || apiSocket(base) != "" {
		return base, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", usagef("address of the API %q: want something like https://api.example.com/v1", base)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return "", usagef("address of the API %q: the key would go over the network in clear, use https", base)
	}
	return base, nil
}

// apiSocket is the socket of an address such as unix:/run/s, where somebody else adds the key. It is empty for other
// addresses.
func apiSocket(base string) string {
	socket, ok := strings.CutPrefix(base, "unix:")
	if !ok {
		return ""
	}
	return socket
}

// newClient makes the API's client; an empty base is $OPENAI_BASE_URL, or the address of OpenAI.
func newClient(base string, more ...option.RequestOption) (*openai.Client, error) {
	address, err := apiAddress(base)
	if err != nil {
		return nil, err
	}
	var options []option.RequestOption
	if socket := apiSocket(address); socket != "" {
		options = append(options, option.WithAPIKey("none"), option.WithBaseURL("http://"+gateway.Host),
			option.WithHTTPClient(&http.Client{Transport: gateway.Dial(socket)}))
	} else {
		key, err := apiKey()
		if err != nil {
			return nil, err
		}
		options = append(options, option.WithAPIKey(key))
		if address != "" {
			options = append(options, option.WithBaseURL(address))
		}
	}
	client := openai.NewClient(append(options, more...)...)
	return &client, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// causes keeps why the latest thing went wrong. The errors of the runner say nothing of what drivers, approvers and the
// API had to say, as they may be kept anywhere; the person who started the command is to know it.
type causes struct{ latest error }

func (c *causes) note(err error) { c.latest = err }

// middleware notes why requests fail: that they never got through, or what the API said.
func (c *causes) middleware(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	c.latest = nil
	response, err := next(r)
	if err != nil {
		c.note(err)
	} else if response.StatusCode >= http.StatusBadRequest {
		c.note(said(response))
	}
	return response, err
}

// said is what the API says in a response that is an error, nil if it says nothing. The body can still be read.
func said(response *http.Response) error {
	const most = 64 << 10
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	rest := response.Body
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	var answer struct{ Error struct{ Message string } }
	if err != nil || json.Unmarshal(body, &answer) != nil || answer.Error.Message == "" {
		return nil
	}
	return fmt.Errorf("%q", answer.Error.Message)
}

// explain adds to an error what is known about its cause.
func (c *causes) explain(err error) error {
	if c.latest == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, c.latest)
}

var errDeadline = errors.New("the time that --deadline gives is over")
