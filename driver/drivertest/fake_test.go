package drivertest_test

import (
	"context"
	"errors"
	"image"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/drivertest"
)

func TestFakeContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Rig {
		f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
		return drivertest.Rig{Driver: f, Screen: f.Screen, Events: f.Events, Held: f.Held, Pointer: f.Pointer}
	})
}

func TestFakeHook(t *testing.T) {
	why := errors.New("the desktop is on fire")
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480), Hook: func(_ context.Context, a driver.Action) error {
		if a.Kind() == driver.KindMove {
			return why
		}
		return nil
	}}
	move := driver.Move{X: 1, Y: 1, Keys: []string{"CTRL"}}
	if err := f.Move(t.Context(), move); !errors.Is(err, why) {
		t.Errorf("got error %v, want %v", err, why)
	}
	if got := f.Events(); len(got) > 0 {
		t.Errorf("got events %v, want none", got)
	}
	if err := f.Wait(t.Context(), driver.Wait{}); err != nil {
		t.Error(err)
	}
	if got, want := f.Actions(), []driver.Action{move, driver.Wait{}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFakeOverlap(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
	inside := make(chan struct{}, 2)
	release := make(chan struct{})
	f.Hook = func(context.Context, driver.Action) error {
		inside <- struct{}{}
		<-release
		return nil
	}
	for range 2 {
		go func() {
			defer both.Done()
			if err := f.Wait(t.Context(), driver.Wait{}); err != nil {
				t.Error(err)
			}
		}()
	}
	for f.Overlap() < 2 {
		time.Sleep(time.Millisecond)
	}
	if got := len(inside); got > 1 {
		t.Errorf("%d actions run at a time, want 1", got)
	}
	close(release)
	both.Wait()
}
